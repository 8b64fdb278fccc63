import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from . import ruleprovider_pb2 as _ruleprovider_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReserveRequest(_message.Message):
    __slots__ = ("workload", "uid", "node", "rule", "details", "holdMillis")
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    HOLDMILLIS_FIELD_NUMBER: _ClassVar[int]
    workload: _ruleprovider_pb2.Target
    uid: str
    node: str
    rule: _ruleprovider_pb2.PolicyRule
    details: _ruleprovider_pb2.Workload
    holdMillis: int
    def __init__(self, workload: _Optional[_Union[_ruleprovider_pb2.Target, _Mapping]] = ..., uid: _Optional[str] = ..., node: _Optional[str] = ..., rule: _Optional[_Union[_ruleprovider_pb2.PolicyRule, _Mapping]] = ..., details: _Optional[_Union[_ruleprovider_pb2.Workload, _Mapping]] = ..., holdMillis: _Optional[int] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("id", "annotations", "expires")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    id: str
    annotations: _containers.ScalarMap[str, str]
    expires: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., annotations: _Optional[_Mapping[str, str]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ConfirmRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ConfirmResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
