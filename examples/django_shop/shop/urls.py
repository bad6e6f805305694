from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from shop.models import Order
from shop.tasks import confirm

from chimes.integrations.django import enqueue, run_handle


def create_order(request: HttpRequest, number: int) -> JsonResponse:
    """The order and the run that confirms it are one commit. `?fail` rolls both back."""
    try:
        with transaction.atomic():
            Order.objects.create(number=number)
            handle = enqueue(confirm, number)
            if "fail" in request.GET:
                raise ValueError("no payment")
    except ValueError as error:
        return JsonResponse({"error": str(error), "run": handle.id}, status=402)
    return JsonResponse({"run": handle.id}, status=202)


def get_run(request: HttpRequest, run_id: str) -> JsonResponse:
    return JsonResponse({"result": run_handle(run_id).result(timeout="60s")})


def list_orders(request: HttpRequest) -> JsonResponse:
    orders = Order.objects.order_by("number").values("number", "confirmed")
    return JsonResponse({"orders": list(orders)})


urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/", list_orders),
    path("orders/<int:number>", create_order),
    path("runs/<str:run_id>", get_run),
]
