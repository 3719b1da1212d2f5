"""Finding a route by its method and the segments of its path."""

import pytest

from svcd.web.answers import Rendered
from svcd.web.router import Router, Served
from svcd.web.routing import Field, Route

PATHS = ("/", "/a", "/a/{x}", "/a/{x}/b", "/a/now", "/a/now/{y}/c", "/{z}/d")


def served(path: str, method: str = "GET") -> Served:
    names = [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]
    fields = tuple(Field(name, str, {}, "") for name in names)
    route = Route(method, path, "", bucket="read", answers={}, path_fields=fields)
    return Served(route, lambda _request, _values: Rendered(b""))


@pytest.fixture
def router() -> Router:
    router = Router()
    for path in PATHS:
        router.add(served(path))
    router.add(served("/a", "POST"))
    return router


@pytest.mark.parametrize(
    ("asked", "path", "values"),
    [
        ("/", "/", {}),
        ("/a", "/a", {}),
        ("/a/1", "/a/{x}", {"x": "1"}),
        ("/a/1/b", "/a/{x}/b", {"x": "1"}),
        ("/a/now", "/a/now", {}),
        ("/a/now/b", "/a/{x}/b", {"x": "now"}),
        ("/a/now/2/c", "/a/now/{y}/c", {"y": "2"}),
        ("/a/d", "/a/{x}", {"x": "d"}),
        ("/b/d", "/{z}/d", {"z": "b"}),
    ],
)
def test_what_is_spelt_out_goes_before_a_placeholder(
    router: Router, asked: str, path: str, values: dict[str, str]
) -> None:
    found = router.find(b"GET", asked.split("/")[1:])
    assert found is not None
    assert (found[0].route.path, found[1]) == (path, values)


@pytest.mark.parametrize("asked", ["/b", "/a/", "/a//b", "/a/1/b/c", "/a/now/2", "//d", "/A"])
def test_where_nothing_is(router: Router, asked: str) -> None:
    assert router.find(b"GET", asked.split("/")[1:]) is None


def test_a_route_answers_its_own_method(router: Router) -> None:
    found = router.find(b"POST", ["a"])
    assert found is not None
    assert found[0].route.method == "POST"
    assert router.find(b"POST", ["a", "1"]) is None
    assert router.find(b"HEAD", ["a"]) is None


def test_no_two_routes_have_the_same_path() -> None:
    router = Router()
    router.add(served("/a/{x}"))
    with pytest.raises(ValueError, match=r"/a/\{y\}: /a/\{x\} is the same path"):
        router.add(served("/a/{y}"))
