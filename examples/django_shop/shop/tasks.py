from django.conf import settings

from chimes import Chimes

app = Chimes(settings.STORE)


@app.task(retries=3)
def confirm(order: int) -> str:
    """A sync task runs in a thread, where Django's ORM may be used."""
    from shop.models import Order

    updated = Order.objects.filter(number=order).update(confirmed=True)
    return f"{updated} order confirmed"
