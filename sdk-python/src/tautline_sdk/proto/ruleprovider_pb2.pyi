from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PolicyRule(_message.Message):
    __slots__ = ("name", "request", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    request: str
    limit: str
    def __init__(self, name: _Optional[str] = ..., request: _Optional[str] = ..., limit: _Optional[str] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("cluster", "namespace", "apiVersion", "kind", "name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    APIVERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    namespace: str
    apiVersion: str
    kind: str
    name: str
    def __init__(self, cluster: _Optional[str] = ..., namespace: _Optional[str] = ..., apiVersion: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class EvaluateRequest(_message.Message):
    __slots__ = ("targets", "rule", "targetNodes", "targetPlaces")
    class TargetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Target
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...
    class TargetNodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TargetPlacesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Places
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Places, _Mapping]] = ...) -> None: ...
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    TARGETNODES_FIELD_NUMBER: _ClassVar[int]
    TARGETPLACES_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.MessageMap[str, Target]
    rule: PolicyRule
    targetNodes: _containers.ScalarMap[str, str]
    targetPlaces: _containers.MessageMap[str, Places]
    def __init__(self, targets: _Optional[_Mapping[str, Target]] = ..., rule: _Optional[_Union[PolicyRule, _Mapping]] = ..., targetNodes: _Optional[_Mapping[str, str]] = ..., targetPlaces: _Optional[_Mapping[str, Places]] = ...) -> None: ...

class Places(_message.Message):
    __slots__ = ("places",)
    PLACES_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, places: _Optional[_Iterable[str]] = ...) -> None: ...

class EvaluateResponse(_message.Message):
    __slots__ = ("compliance", "reason")
    class ComplianceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Pending: _ClassVar[EvaluateResponse.ComplianceState]
        Compliant: _ClassVar[EvaluateResponse.ComplianceState]
        Limit: _ClassVar[EvaluateResponse.ComplianceState]
        Violation: _ClassVar[EvaluateResponse.ComplianceState]
        Error: _ClassVar[EvaluateResponse.ComplianceState]
    Pending: EvaluateResponse.ComplianceState
    Compliant: EvaluateResponse.ComplianceState
    Limit: EvaluateResponse.ComplianceState
    Violation: EvaluateResponse.ComplianceState
    Error: EvaluateResponse.ComplianceState
    COMPLIANCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    compliance: EvaluateResponse.ComplianceState
    reason: str
    def __init__(self, compliance: _Optional[_Union[EvaluateResponse.ComplianceState, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class NodeCost(_message.Message):
    __slots__ = ("node", "cost", "reason", "detail", "freeable", "tieBreak")
    NODE_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FREEABLE_FIELD_NUMBER: _ClassVar[int]
    TIEBREAK_FIELD_NUMBER: _ClassVar[int]
    node: str
    cost: int
    reason: str
    detail: str
    freeable: bool
    tieBreak: int
    def __init__(self, node: _Optional[str] = ..., cost: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., freeable: _Optional[bool] = ..., tieBreak: _Optional[int] = ...) -> None: ...

class EndpointCostResponse(_message.Message):
    __slots__ = ("nodeAndCost", "resolution", "requestCost")
    NODEANDCOST_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    REQUESTCOST_FIELD_NUMBER: _ClassVar[int]
    nodeAndCost: _containers.RepeatedCompositeFieldContainer[NodeCost]
    resolution: int
    requestCost: int
    def __init__(self, nodeAndCost: _Optional[_Iterable[_Union[NodeCost, _Mapping]]] = ..., resolution: _Optional[int] = ..., requestCost: _Optional[int] = ...) -> None: ...

class Workload(_message.Message):
    __slots__ = ("labels", "annotations", "requests", "uid", "resourceClaims", "containers")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class RequestsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    RESOURCECLAIMS_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    requests: _containers.ScalarMap[str, str]
    uid: str
    resourceClaims: _containers.RepeatedScalarFieldContainer[str]
    containers: _containers.RepeatedCompositeFieldContainer[Container]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., annotations: _Optional[_Mapping[str, str]] = ..., requests: _Optional[_Mapping[str, str]] = ..., uid: _Optional[str] = ..., resourceClaims: _Optional[_Iterable[str]] = ..., containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("kind", "requests")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Main: _ClassVar[Container.Kind]
        Init: _ClassVar[Container.Kind]
        Sidecar: _ClassVar[Container.Kind]
    Main: Container.Kind
    Init: Container.Kind
    Sidecar: Container.Kind
    class RequestsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    kind: Container.Kind
    requests: _containers.ScalarMap[str, str]
    def __init__(self, kind: _Optional[_Union[Container.Kind, str]] = ..., requests: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("role", "target", "node")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    role: str
    target: Target
    node: str
    def __init__(self, role: _Optional[str] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., node: _Optional[str] = ...) -> None: ...

class InFlightPod(_message.Message):
    __slots__ = ("pod", "node", "workload")
    POD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    pod: Target
    node: str
    workload: Workload
    def __init__(self, pod: _Optional[_Union[Target, _Mapping]] = ..., node: _Optional[str] = ..., workload: _Optional[_Union[Workload, _Mapping]] = ...) -> None: ...

class EndpointCostRequest(_message.Message):
    __slots__ = ("source", "rule", "peerNodes", "eligibleNodes", "workload", "peers", "inFlight")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    PEERNODES_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLENODES_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    source: Target
    rule: PolicyRule
    peerNodes: _containers.RepeatedScalarFieldContainer[str]
    eligibleNodes: _containers.RepeatedScalarFieldContainer[str]
    workload: Workload
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    inFlight: _containers.RepeatedCompositeFieldContainer[InFlightPod]
    def __init__(self, source: _Optional[_Union[Target, _Mapping]] = ..., rule: _Optional[_Union[PolicyRule, _Mapping]] = ..., peerNodes: _Optional[_Iterable[str]] = ..., eligibleNodes: _Optional[_Iterable[str]] = ..., workload: _Optional[_Union[Workload, _Mapping]] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., inFlight: _Optional[_Iterable[_Union[InFlightPod, _Mapping]]] = ...) -> None: ...

class CostWatch(_message.Message):
    __slots__ = ("sequence", "removedNodes", "addedNodes", "endedPods", "placedPods", "closedQuestions", "openedQuestions")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REMOVEDNODES_FIELD_NUMBER: _ClassVar[int]
    ADDEDNODES_FIELD_NUMBER: _ClassVar[int]
    ENDEDPODS_FIELD_NUMBER: _ClassVar[int]
    PLACEDPODS_FIELD_NUMBER: _ClassVar[int]
    CLOSEDQUESTIONS_FIELD_NUMBER: _ClassVar[int]
    OPENEDQUESTIONS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    removedNodes: _containers.RepeatedScalarFieldContainer[int]
    addedNodes: _containers.RepeatedCompositeFieldContainer[IndexedNode]
    endedPods: _containers.RepeatedScalarFieldContainer[str]
    placedPods: _containers.RepeatedCompositeFieldContainer[InFlightPod]
    closedQuestions: _containers.RepeatedScalarFieldContainer[int]
    openedQuestions: _containers.RepeatedCompositeFieldContainer[OpenedQuestion]
    def __init__(self, sequence: _Optional[int] = ..., removedNodes: _Optional[_Iterable[int]] = ..., addedNodes: _Optional[_Iterable[_Union[IndexedNode, _Mapping]]] = ..., endedPods: _Optional[_Iterable[str]] = ..., placedPods: _Optional[_Iterable[_Union[InFlightPod, _Mapping]]] = ..., closedQuestions: _Optional[_Iterable[int]] = ..., openedQuestions: _Optional[_Iterable[_Union[OpenedQuestion, _Mapping]]] = ...) -> None: ...

class IndexedNode(_message.Message):
    __slots__ = ("index", "name")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    def __init__(self, index: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class OpenedQuestion(_message.Message):
    __slots__ = ("id", "question")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    id: int
    question: EndpointCostRequest
    def __init__(self, id: _Optional[int] = ..., question: _Optional[_Union[EndpointCostRequest, _Mapping]] = ...) -> None: ...

class CostUpdate(_message.Message):
    __slots__ = ("costs", "failures", "through")
    COSTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    costs: _containers.RepeatedCompositeFieldContainer[QuestionCosts]
    failures: _containers.RepeatedCompositeFieldContainer[QuestionFailure]
    through: int
    def __init__(self, costs: _Optional[_Iterable[_Union[QuestionCosts, _Mapping]]] = ..., failures: _Optional[_Iterable[_Union[QuestionFailure, _Mapping]]] = ..., through: _Optional[int] = ...) -> None: ...

class QuestionCosts(_message.Message):
    __slots__ = ("question", "lines", "resolution", "requestCost", "perPod")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    REQUESTCOST_FIELD_NUMBER: _ClassVar[int]
    PERPOD_FIELD_NUMBER: _ClassVar[int]
    question: int
    lines: _containers.RepeatedCompositeFieldContainer[IndexedCost]
    resolution: int
    requestCost: int
    perPod: bool
    def __init__(self, question: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[IndexedCost, _Mapping]]] = ..., resolution: _Optional[int] = ..., requestCost: _Optional[int] = ..., perPod: _Optional[bool] = ...) -> None: ...

class IndexedCost(_message.Message):
    __slots__ = ("index", "cost", "reason", "detail", "freeable", "tieBreak")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FREEABLE_FIELD_NUMBER: _ClassVar[int]
    TIEBREAK_FIELD_NUMBER: _ClassVar[int]
    index: int
    cost: int
    reason: str
    detail: str
    freeable: bool
    tieBreak: int
    def __init__(self, index: _Optional[int] = ..., cost: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., freeable: _Optional[bool] = ..., tieBreak: _Optional[int] = ...) -> None: ...

class QuestionFailure(_message.Message):
    __slots__ = ("question", "code", "message")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    question: int
    code: int
    message: str
    def __init__(self, question: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
