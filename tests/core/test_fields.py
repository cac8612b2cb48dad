"""Settings that many steps share."""

import pytest
from pydantic import ValidationError

from pairsmith.core.fields import WorkerSettings


@pytest.mark.parametrize(
    "address",
    [
        "auto",
        "local",
        "10.0.0.1:6379",
        "head:6379",
        "ray://head:10001",
        "[fe80::1]:6379",
        "ray://[::1]:10001",
    ],
)
def test_addresses_that_ray_accepts(address):
    assert WorkerSettings(executor="ray", ray_address=address).ray_address == address


@pytest.mark.parametrize(
    "address",
    ["head", "http://head:8265", "head:8265/jobs", "head:123456", "autos", "::1:6379", "[head]:6379"],
)
def test_addresses_that_ray_does_not_accept_are_refused_with_what_to_give(address):
    with pytest.raises(ValidationError, match="give HOST:PORT of the cluster's head"):
        WorkerSettings(executor="ray", ray_address=address)
