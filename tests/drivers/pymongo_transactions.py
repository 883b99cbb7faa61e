"""PyMongo's `with_transaction` against a router: documents on two shards, an error, and a conflict that is repeated."""

import os
import threading

from pymongo import MongoClient
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

client = MongoClient(os.environ["MONGODB_URI"], serverSelectionTimeoutMS=10_000)
client.drop_database("py_transactions")
shards = [shard["_id"] for shard in client.admin.command("listShards")["shards"]]
assert len(shards) >= 2, "two shards are needed"
ns = "py_transactions.accounts"
client.admin.command("enableSharding", "py_transactions", primaryShard=shards[0])
client.admin.command("shardCollection", ns, key={"n": 1})
client.admin.command("split", ns, middle={"n": 100})
client.admin.command("moveChunk", ns, find={"n": 100}, to=shards[1])
accounts = client.py_transactions.accounts
# A transaction over several shards may not make a collection.
client.py_transactions.create_collection("log")
accounts.insert_many([{"n": n, "balance": 100} for n in (1, 101)])


def transfer(session, amount):
    for n, change in ((1, -amount), (101, amount)):
        after = accounts.find_one_and_update({"n": n}, {"$inc": {"balance": change}}, session=session, return_document=True)
    client.py_transactions.log.insert_one({"amount": amount}, session=session)
    return after["balance"]


def balances():
    return [account["balance"] for account in accounts.find(sort=[("n", 1)])]


options = {"read_concern": ReadConcern("snapshot"), "write_concern": WriteConcern("majority")}
with client.start_session() as session:
    assert session.with_transaction(lambda s: transfer(s, 30), **options) == 130
assert balances() == [70, 130], balances()


def fails(session):
    transfer(session, 30)
    raise ValueError("taken back")


with client.start_session() as session:
    try:
        session.with_transaction(fails)
    except ValueError:
        pass
    else:
        raise AssertionError("the error was lost")
assert balances() == [70, 130], balances()
assert client.py_transactions.log.count_documents({}) == 1

# Several at once on the same documents: conflicts are repeated until each is done once.
errors = []


def concurrent():
    try:
        with client.start_session() as session:
            session.with_transaction(lambda s: transfer(s, 1), **options)
    except Exception as error:  # noqa: BLE001
        errors.append(error)


threads = [threading.Thread(target=concurrent) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
assert balances() == [66, 134], balances()
assert client.py_transactions.log.count_documents({}) == 5
client.drop_database("py_transactions")
print("PyMongo: with_transaction passed")
