import pickle

from replica.errors import UsageError


def test_usage_errors_travel_between_processes():
    error = pickle.loads(pickle.dumps(UsageError("nu", -1, "0 or more")))
    assert (error.field, error.value, error.allowed) == ("nu", -1, "0 or more")
