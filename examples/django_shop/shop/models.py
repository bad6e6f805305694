from django.db import models


class Order(models.Model):
    number = models.IntegerField(unique=True)
    confirmed = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"
