"""Every limit in force, in one table: what the configuration sets and what the code has."""

from collections.abc import Iterator
from typing import Final

from svcd.chain import encoding
from svcd.commerce import attempt, callback_host, lanes, schedule, subscriptions
from svcd.composition.descriptors import OPERATOR_CONNECTIONS
from svcd.config.schema import Config
from svcd.net.meter import MAX_HEAD_BYTES
from svcd.node import aside, early, ledger, living, mempool
from svcd.p2p import (
    address_book,
    administration,
    announcements,
    bans,
    block_server,
    blocks,
    branch_push,
    client,
    handshake,
    headers,
    peers,
    promises,
    relay,
    resource,
    transport,
)
from svcd.process import logs
from svcd.process.listening import ACCEPTED_AT_ONCE
from svcd.rpc.limits import Limit
from svcd.web import buckets, connections, forwarding, request, routing
from svcd.web.api import MAX_QUERY_FIELDS
from svcd.web.buckets import MAX_CLIENTS
from svcd.web.channel import Channel
from svcd.web.limits import DEFAULT_BODY_CAP, SiteLimits

_TOO_OFTEN: Final = "More requests than the node can answer"
_LARGE: Final = "A body larger than memory or disk"
_POOL: Final = "Filling the mempool"
_FUTURE: Final = "Blocks of the future, to fill memory or to get ahead"
_NO_PARENTS: Final = (
    "Blocks without parents, to make the node do memory-hard work, fill its memory or ask its peers without end"
)
_BOASTING: Final = "Claiming the greatest chain there can be, and delivering nothing"
_ENDLESS: Final = "An endless answer, or one that never comes"
_BOOK: Final = "Filling the book of a node with endpoints of the attacker"
_DEAD_HOST: Final = "A receiver that never works, to be tried for ever"
_STALLING_HOST: Final = "A receiver that stalls in the handshake, the headers or the body"
_NO_DELIVERY: Final = "Announcing a block and not delivering it, so that others are not asked"
_SLOW_HAND: Final = "Taking transfers or sending ranges slowly, so that blocks wait"
_MANY_WATCHES: Final = "More watches than the node can follow"


def limits_of(config: Config) -> list[Limit]:
    """The table for a node with this configuration."""
    return [*_connections(config), *_requests(config), *_chain(config), *_between_nodes(), *_callbacks(config)]


def _connections(config: Config) -> Iterator[Limit]:
    limits, site = config.limits, SiteLimits()
    crowded = "Idle connections, to use up sockets"
    yield Limit("connections", limits.connections, "connections", crowded, "limits.connections")
    yield Limit("connections of the operator", OPERATOR_CONNECTIONS, "connections", crowded)
    yield Limit("connections accepted in a turn of the reactor", ACCEPTED_AT_ONCE, "connections", crowded)
    of_one, setting = "One client takes all connections", "limits.connectionsPerClient"
    yield Limit("connections of one client", limits.connections_per_client, "connections", of_one, setting)
    headers = "Headers sent byte by byte, to hold connections"
    yield Limit("time for a request's headers", limits.header_seconds, "seconds", headers, "limits.headerSeconds")
    body = "A body sent byte by byte"
    yield Limit("time for a whole request", limits.request_seconds, "seconds", body, "limits.requestSeconds")
    unread = "Asking and never reading, to fill our memory with answers"
    yield Limit("time to take an answer", limits.answer_seconds, "seconds", unread, "limits.answerSeconds")
    yield Limit("time between two requests", limits.idle_seconds, "seconds", crowded, "limits.idleSeconds")
    long_heads = "Headers without end, to fill memory"
    yield Limit("a request's headers", Channel.totalHeadersSize, "bytes", long_heads)
    yield Limit("lines of a request's headers", Channel.maxHeaders, "things", long_heads)
    yield Limit("a request's body", DEFAULT_BODY_CAP, "bytes", _LARGE)
    for (method, path), cap in (resource.BODY_CAPS | block_server.BODY_CAPS).items():
        yield Limit(f"body of {method.decode()} {path.decode()}", cap, "bytes", _LARGE)
    together = "A body just below the cap on each of a thousand connections"
    yield Limit("bodies of all requests at once", site.bodies_bytes, "bytes", together)
    alone = "Bodies that are never completed, so that no other client's are taken"
    yield Limit("bodies of one client's requests at once", site.bodies_bytes_per_client, "bytes", alone)
    untaken = "Asking for megabytes on many connections and not taking them, to fill our memory or to hold every place"
    yield Limit("answers that clients have not taken", site.untaken_bytes, "bytes", untaken)
    chunks = "A body in chunks of a byte each, to hold up the reactor"
    yield Limit("chunks of a body, whatever their size", request.FREE_PIECES, "things", chunks)
    yield Limit("bytes in each further chunk, on average", request.LEAST_PIECE, "bytes", chunks)
    pipelined = "Thousands of requests in one piece, to hold up the reactor"
    yield Limit("pipelined requests answered in a turn of the reactor", connections.AT_ONCE, "things", pipelined)
    yield Limit("of them, what is read before its turn", connections.AHEAD_BYTES, "bytes", pipelined)
    halves = "Asking for much in one piece and ending the own half, to have the node answer nobody for long"
    yield Limit("time for what a client asked that sends no more", site.close_seconds, "seconds", halves)


def _requests(config: Config) -> Iterator[Limit]:
    limits = config.limits
    yield Limit("reading", limits.requests_per_second, "requests/s", _TOO_OFTEN, "limits.requestsPerSecond")
    broadcasts, setting = limits.broadcasts_per_second, "limits.broadcastsPerSecond"
    yield Limit("POST /rpc/broadcast", broadcasts, "requests/s", _TOO_OFTEN, setting)
    yield Limit("webhook routes", limits.webhooks_per_second, "requests/s", _TOO_OFTEN, "limits.webhooksPerSecond")
    yield Limit("/p2p", limits.peer_posts_per_second, "requests/s", _TOO_OFTEN, "limits.peerPostsPerSecond")
    yield Limit("what may be asked for at once", limits.burst_seconds, "seconds", _TOO_OFTEN, "limits.burstSeconds")
    large = (
        "Asking for as many full blocks as for status answers, or hanging up before they come, "
        "so that disk and line serve one client"
    )
    yield Limit("size of blocks that counts as one request", routing.BYTES_PER_TOKEN, "bytes", large)
    forgetting = "Requests from ever new addresses, to fill the memory of the rates"
    yield Limit("clients remembered for each rate", MAX_CLIENTS, "clients", forgetting)
    names = "A query of thousands of names, to make reading it slow"
    yield Limit("names in a query", MAX_QUERY_FIELDS, "things", names)
    nested = "JSON nested thousands deep, integers of thousands of digits"
    yield Limit("levels of JSON", encoding.MAX_DEPTH, "things", nested)
    crowded = "A body of millions of empty arrays, to fill our memory with objects"
    yield Limit("arrays and objects in JSON, whatever its size", encoding.FREE_VALUES, "things", crowded)
    yield Limit("bytes of JSON for each further array or object", encoding.CONTAINER_BYTES, "bytes", crowded)
    yield Limit("commas in JSON, whatever its size", encoding.FREE_VALUES, "things", crowded)
    yield Limit("bytes of JSON for each further comma", encoding.MEMBER_BYTES, "bytes", crowded)
    repeats = "Causing the same log line without end, to fill the disk"
    yield Limit(f"lines of one kind in {logs.REPEATS_SECONDS:g} s", logs.REPEATS, "things", repeats)


def _chain(config: Config) -> Iterator[Limit]:
    yield Limit("waiting transfers", config.mempool.max_transactions, "things", _POOL, "mempool.maxTransactions")
    yield Limit("size of waiting transfers", config.mempool.max_bytes, "bytes", _POOL, "mempool.maxBytes")
    yield Limit("nonces ahead of the account's", mempool.AHEAD, "things", _POOL)
    yield Limit("transfers kept until there is cover or room for them", aside.MAX_ASIDE, "things", _POOL)
    yield Limit("size of the transfers kept so", aside.MAX_ASIDE_BYTES, "bytes", _POOL)
    many = "More blocks than can be verified"
    yield Limit("blocks that wait for the check of their work", living.VERIFIER_CAPACITY, "blocks", many)
    yield Limit("early blocks that are held", early.MAX_HELD, "blocks", _FUTURE)
    yield Limit("how early a block may be", early.MAX_SLOTS_AHEAD, "slots", _FUTURE)
    forgotten = "Filling the memory of invalid blocks"
    yield Limit("invalid blocks that are remembered", ledger.REMEMBERED_INVALID, "blocks", forgotten)


def _between_nodes() -> Iterator[Limit]:
    future = "A hello from the future, to be used when it suits"
    yield Limit("age of a hello", handshake.CLOCK_TOLERANCE_MS / 1000, "seconds", future)
    yield Limit("hints from one part of the network in an hour", address_book.HINTS_PER_HOUR, "things", _BOOK)
    yield Limit("buckets for the hints of one part of the network", address_book.SOURCE_BUCKETS, "things", _BOOK)
    again = "Having a node call somebody again and again in our name"
    yield Limit("time between two calls back", peers.CALL_BACK_SECONDS, "seconds", again)
    yield Limit("time between two questions for an orphan", peers.ASK_AGAIN_SECONDS, "seconds", _NO_PARENTS)
    yield Limit("claims looked into at a time", headers.MAX_CLAIMS, "things", _BOASTING)
    yield Limit("claims that take longer, beside them", headers.MAX_LONG_CLAIMS, "things", _BOASTING)
    yield Limit("questions for the last common block", headers.MAX_SEARCHES, "things", _BOASTING)
    yield Limit("time for an answer about a claim", headers.PROOF_SECONDS, "seconds", _BOASTING)
    yield Limit("time to prove one claim", headers.LONGEST_PROOF, "seconds", "Headers of little work without end")
    yield Limit("time that a proven chain counts without its blocks", headers.HOLD_SECONDS, "seconds", _BOASTING)
    yield Limit("lead of a proven chain that makes the node wait for it", headers.FAR_BLOCKS, "blocks", _BOASTING)
    yield Limit("time in which a node that catches up gains blocks", headers.GAIN_SECONDS, "seconds", _BOASTING)
    yield Limit("time that blocks wait for further headers", headers.FEED_SECONDS, "seconds", "A peer that stalls")
    yield Limit("time to follow a peer without headers in vain", headers.BRANCH_SECONDS, "seconds", _BOASTING)
    yield Limit("verified headers ahead of the blocks", headers.WINDOW_HEADERS, "things", _ENDLESS)
    yield Limit("price of an invalid block", bans.INVALID_SECONDS, "seconds", _NO_PARENTS)
    junk = "Malformed posts without end, to have them read"
    yield Limit("good posts that a malformed one costs as much as", bans.MALFORMED_TOKENS, "things", junk)
    yield Limit("time of malformed posts that counts as a flood", buckets.PERSISTENT_SECONDS, "seconds", junk)
    yield Limit("price of a flood of malformed posts", bans.PERSISTENT_BAN_SECONDS, "seconds", junk)
    shut_out = "An invalid block through a proxy, to have all others behind it banned"
    yield Limit("time that an address counts as a proxy", forwarding.FORWARDING_SECONDS, "seconds", shut_out)
    yield Limit("addresses remembered as proxies", forwarding.MAX_PROXIES, "clients", shut_out)
    yield Limit("time without any of the missing blocks", blocks.STALL_SECONDS, "seconds", "A peer that stalls")
    yield Limit("questions under way to one peer", blocks.MAX_REQUESTS, "things", "A peer that stalls")
    window = "Holding back one block, to fill the node's memory with those behind it"
    yield Limit("blocks ahead of the one that is missing", blocks.WINDOW_BLOCKS, "blocks", window)
    yield Limit("size of the blocks ahead", blocks.WINDOW_BYTES, "bytes", window)
    yield Limit("blocks that are verified together", blocks.BATCH_BYTES, "bytes", window)
    yield Limit("blocks in an answer", client.BLOCKS_BYTES, "bytes", _ENDLESS)
    yield Limit("time without progress of an answer", client.STALL_SECONDS, "seconds", _ENDLESS)
    yield Limit("progress of an answer in that time", client.LEAST_BYTES, "bytes", _ENDLESS)
    yield Limit("headers that are sent at once", block_server.MAX_HEADERS, "things", _TOO_OFTEN)
    yield Limit("hashes in a locator", block_server.MAX_LOCATOR, "things", _TOO_OFTEN)
    yield Limit("blocks in one question", block_server.MAX_HASHES, "things", _TOO_OFTEN)
    yield Limit("announced blocks that are fetched at a time", announcements.MAX_FETCHES, "blocks", _NO_DELIVERY)
    yield Limit("head start of the first that is asked", announcements.HEAD_START_SECONDS, "seconds", _NO_DELIVERY)
    yield Limit("rate of a peer that delivers at all", announcements.LEAST_RATE, "bytes", _NO_DELIVERY)
    yield Limit("rate beside which no other is asked", announcements.GOOD_RATE, "bytes", _NO_DELIVERY)
    yield Limit("time for which these rates suffice", announcements.FETCH_SECONDS, "seconds", _NO_DELIVERY)
    junk = "Announcing headers without end, to have their work checked"
    yield Limit("announced headers that are checked at a time", announcements.MAX_CHECKS, "things", junk)
    promise = "Announcing every block first and saying that it comes, so that it is asked of no other peer"
    yield Limit("time that a peer has to push a block", promises.PUSH_SECONDS, "seconds", promise)
    yield Limit(
        "time without waiting for a push after one that did not come", promises.BROKEN_SECONDS, "seconds", promise
    )
    yield Limit("reasons in a row not to send one", promises.MAX_EXCUSES, "things", promise)
    yield Limit("headers of an answer", MAX_HEAD_BYTES, "bytes", _ENDLESS)
    yield Limit("transfers to be handed on to one peer", relay.QUEUE, "things", _SLOW_HAND)
    yield Limit("of them on their way", relay.IN_FLIGHT, "things", _SLOW_HAND)
    yield Limit("larger blocks sent to all peers at a time", relay.UPLOADS, "blocks", _SLOW_HAND)
    yield Limit("time that one of them keeps others waiting", relay.UPLOAD_SECONDS, "seconds", _SLOW_HAND)
    yield Limit("blocks on their way to one peer", relay.BLOCKS_IN_FLIGHT, "blocks", _SLOW_HAND)
    lacking = "Taking a branch from a node that nobody can call, again and again from its root"
    yield Limit("blocks handed at once to a peer that lacks them", branch_push.ROUND_BYTES, "bytes", lacking)
    yield Limit("what such a block counts as at least", branch_push.LEAST_BYTES, "bytes", lacking)
    yield Limit("first rest of a peer that gets no further by it", branch_push.FIRST_REST, "seconds", lacking)
    yield Limit("longest rest of such a peer", branch_push.LONGEST_REST, "seconds", lacking)
    slowly = "Taking a branch from such a node slowly, so that others wait for it"
    yield Limit("time for the blocks that a peer is handed at once", branch_push.ROUND_SECONDS, "seconds", slowly)
    yield Limit("time to find the last common block", branch_push.SEARCH_SECONDS, "seconds", slowly)
    yield Limit("questions for it", branch_push.SEARCH_QUESTIONS, "things", slowly)
    yield Limit("time that a peer may have us wait", transport.LONGEST_REST, "seconds", "A peer that stalls")
    yield Limit("peers' bans that are shown", administration.MAX_SHOWN, "things", _TOO_OFTEN)
    yield Limit("blocks that we send at once", block_server.MAX_REPLY_BYTES, "bytes", _TOO_OFTEN)


def _callbacks(config: Config) -> Iterator[Limit]:
    longest, setting = config.commerce.webhooks.max_ttl_seconds, "commerce.webhooks.maxTtlSeconds"
    yield Limit("time a watch may last", longest, "seconds", _MANY_WATCHES, setting)
    yield Limit("active watches", subscriptions.MAX_WATCHES, "things", _MANY_WATCHES)
    yield Limit("active watches for one host", subscriptions.MAX_AT_HOST, "things", _MANY_WATCHES)
    yield Limit("time for an attempt", attempt.LIMITS.seconds, "seconds", _STALLING_HOST)
    endless = "A receiver that answers without end"
    yield Limit("answer to a callback", attempt.LIMITS.max_bytes, "bytes", endless)
    yield Limit("deliveries at once", lanes.PLACES, "things", _STALLING_HOST)
    yield Limit("deliveries at once to one host", callback_host.PLACES_PER_HOST, "things", _STALLING_HOST)
    yield Limit("attempts for an event", schedule.MAX_ATTEMPTS, "things", _DEAD_HOST)
    yield Limit("failures in a row that break a host", callback_host.BREAKS_AFTER, "things", _DEAD_HOST)
