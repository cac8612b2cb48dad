"""The memory that oneDNN may take for compiled products."""

import os

from pairsmith.core.model_files import COMPILED_PRODUCTS, pick_device

VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def test_compiled_products_are_limited_before_any_model_is_loaded(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    pick_device("cpu")
    assert [os.environ[variable] for variable in VARIABLES] == [str(COMPILED_PRODUCTS)] * 2


def test_a_users_own_limit_stays(monkeypatch):
    monkeypatch.setenv(VARIABLES[0], "7")
    pick_device("cpu")
    assert os.environ[VARIABLES[0]] == "7"
