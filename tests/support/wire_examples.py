"""A message with every kind of field, and random values for it."""

from __future__ import annotations

from hypothesis import strategies as st

from storage.cluster.wire.protobuf import FieldKind, MessageField, MessageTable, ProtobufMessage

INNER = MessageTable(
    "Inner",
    MessageField(1, "name", FieldKind.TEXT, is_required=True),
    MessageField(2, "count", FieldKind.INTEGER),
)
OUTER = MessageTable(
    "Outer",
    MessageField(1, "number", FieldKind.INTEGER),
    MessageField(2, "unsigned", FieldKind.UNSIGNED),
    MessageField(3, "choice", FieldKind.INTEGER, names={1: "ONE"}),
    MessageField(4, "text", FieldKind.TEXT),
    MessageField(5, "data", FieldKind.BYTES),
    MessageField(6, "inner", FieldKind.MESSAGE, INNER),
    MessageField(7, "several", FieldKind.MESSAGE, INNER, is_repeated=True),
    MessageField(8, "texts", FieldKind.TEXT, is_repeated=True),
)

_NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)


def messages(unknown: st.SearchStrategy[bytes]) -> st.SearchStrategy[ProtobufMessage]:
    """Random messages of the type OUTER."""
    inner = st.builds(
        ProtobufMessage,
        st.fixed_dictionaries({"name": st.text(max_size=9)}, optional={"count": _NUMBER}),
        unknown,
    )
    return st.builds(
        ProtobufMessage,
        st.fixed_dictionaries(
            {},
            optional={
                "number": _NUMBER,
                "unsigned": st.integers(0, (1 << 64) - 1),
                "choice": st.integers(1, 3),
                "text": st.text(max_size=9),
                "data": st.binary(max_size=9),
                "inner": inner,
                "several": st.lists(inner, min_size=1, max_size=3).map(tuple),
                "texts": st.lists(st.text(max_size=5), min_size=1, max_size=3).map(tuple),
            },
        ),
        unknown,
    )
