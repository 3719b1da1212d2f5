"""Which connection gives way when a resource is used up."""

from svcd.web.connections import Budget


def test_oldest_share_of_the_client_that_holds_most_gives_way() -> None:
    budget: Budget[str] = Budget()
    for connection, client, size in (("m", "modest", 40), ("first", "greedy", 25), ("second", "greedy", 25)):
        budget.add(connection, client, size)

    assert budget.oldest_of_greediest() == "first"
    assert (budget.bytes, budget.of_client("greedy"), budget.of_client("other")) == (90, 50, 0)
    assert budget.release("first") == "greedy"
    assert budget.oldest_of_greediest() == "m"


def test_clients_that_hold_no_more_than_they_need_count_as_one() -> None:
    budget: Budget[str] = Budget()
    for connection, client, size in (("old", "small", 10), ("m", "modest", 40), ("g", "greedy", 41)):
        budget.add(connection, client, size)

    assert budget.oldest_of_greediest(modest=40) == "g"
    assert budget.oldest_of_greediest(modest=41) == "old"


def test_connections_without_a_client_are_told_apart() -> None:
    budget: Budget[str] = Budget()
    for connection, size in (("a", 30), ("b", 50), ("c", 30)):
        budget.add(connection, None, size)

    assert budget.oldest_of_greediest() == "b"
    assert budget.release("b") is None


def test_share_that_grows_keeps_its_age() -> None:
    budget: Budget[str] = Budget()
    for connection in ("first", "second", "first"):
        budget.add(connection, "client", 10)

    assert budget.oldest_of("client") == "first"


def test_share_that_is_kept_counts_and_does_not_give_way() -> None:
    budget: Budget[str] = Budget()
    budget.add("complete", "client", 100)
    budget.keep("complete")
    budget.keep("unknown")
    assert not budget

    budget.add("incomplete", "client", 1)

    assert list(budget) == ["incomplete"]
    assert budget.oldest_of_greediest() == budget.oldest_of("client") == "incomplete"
    assert budget.of_client("client") == 101
    budget.release("complete")
    budget.release("complete")
    assert budget.bytes == 1


def test_shares_of_no_bytes() -> None:
    budget: Budget[str] = Budget()
    for connection in ("first", "second"):
        budget.add(connection, "client", 0)

    assert budget.oldest_of_greediest() == "first"
    for connection in ("first", "second"):
        budget.release(connection)
    assert not budget
