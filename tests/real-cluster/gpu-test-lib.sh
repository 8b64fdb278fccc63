# shellcheck shell=bash disable=SC2154,SC2034,SC2016
# What `gpu-test` does and checks. Checks say why they fail, for `wait_for`.

# The library and its cards, of each node; a pod reaches them at /host.
fake_cards() {
    local node
    for node in n1 n2; do
        mkdir -p "$run/$node/fake/dev"
        cp "$fake_library" "$run/$node/fake/libnvidia-ml.so.1"
    done
    jq . "$repo/tests/fake-nvml/cards.json" | write_cards n1
    jq '.cards |= (.[:2] | map(.uuid |= sub("GPU-........"; "GPU-22222222")))' "$repo/tests/fake-nvml/cards.json" |
        write_cards n2
    write_cdi_spec
}

# write_cards NODE: from stdin, at once.
write_cards() {
    cat >"$run/$1/fake/cards.json.new"
    mv "$run/$1/fake/cards.json.new" "$run/$1/fake/cards.json"
}

# change_cards NODE FILTER: of jq.
change_cards() { jq "$2" "$run/$1/fake/cards.json" | write_cards "$1"; }

uuid() { jq -r ".cards[$2].uuid" "$run/$1/fake/cards.json"; }

# As nvidia-ctk would write it, of devices that do nothing.
write_cdi_spec() {
    local i devices=$run/n1/fake/dev
    [[ -e $devices/nvidiactl ]] || mknod "$devices/nvidiactl" c 1 3
    for i in {0..7}; do
        [[ -e $devices/nvidia$i ]] || mknod "$devices/nvidia$i" c 1 3
    done
    jq --arg dev "$devices" '
        def node(name): {path: "/dev/\(name)", hostPath: "\($dev)/\(name)"};
        {cdiVersion: "0.5.0", kind: "nvidia.com/gpu",
         containerEdits: {env: ["FAKE_CDI=common"], deviceNodes: [node("nvidiactl")]},
         devices: ([.cards | to_entries[] | {name: .value.uuid, containerEdits: {deviceNodes: [node("nvidia\(.key)")]}}]
            + [{name: "all", containerEdits: {deviceNodes: [range(8) | node("nvidia\(.)")]}}])}' \
        "$run/n1/fake/cards.json" >"$run/n1/fake/nvidia.json"
    "$here/on" n1 sh -c "mkdir -p /var/run/cdi && cp $run/n1/fake/nvidia.json /var/run/cdi/nvidia.json"
}

install_gpu_chart() {
    installed_at=$EPOCHSECONDS
    "$bin/helm" install tautline "$repo/deploy/chart" --namespace tautline-system --create-namespace \
        --set gpu.enabled=true --set gpu.delivery=device-plugin --set listenHost=0.0.0.0 --set networkPolicy.enabled=true \
        --set providers.latency.enabled=false --set 'controller.extraArgs={--eviction-cool-down=5s}' \
        --set "gpu.extraArgs={--nvml-library=/host$run/\$(NODE_NAME)/fake/libnvidia-ml.so.1}" \
        --set 'gpu.extraEnv[0].name=FAKE_NVML_FILE' \
        --set "gpu.extraEnv[0].value=/host$run/\$(NODE_NAME)/fake/cards.json" \
        --set 'gpu.extraEnv[1].name=FAKE_NVML_STATE,gpu.extraEnv[1].value=/run/tautline/fake-mig.json' \
        --set webhooks.gpuSlices=true \
        --set 'admission.extraArgs={--gpu-shared-resource=tautline.io/gpu-milli,--gpu-shares-per-card=4}' >/dev/null
}

gpu_pods_ready() {
    local pods
    pods=$(kubectl -n tautline-system get pods --no-headers)
    echo "$pods"
    # Two replicas of four components, and three agents.
    (($(grep -c Running <<<"$pods") >= 11)) && awk '{split($2, ready, "/"); if (ready[1] != ready[2]) exit 1}' <<<"$pods"
}

# allocatable NODE MILLI
allocatable() {
    local milli
    milli=$(kubectl get node "$1" -o 'jsonpath={.status.allocatable.tautline\.io/gpu-milli}')
    echo "$1 has tautline.io/gpu-milli: $milli"
    # Kubernetes writes 8000 as 8k.
    [[ ${milli/%k/000} == "$2" ]]
}

# container AMOUNT [IMAGE [RESOURCE]]: prints the cards that it sees, by environment and devices. Its command line has the
# pod's name.
container() {
    local see='echo "$NVIDIA_VISIBLE_DEVICES" $(cd /dev && ls | grep "^nvidia[0-9]")'
    echo "{name: main, image: '${2:-localhost/busybox:1}', resources: {limits: {${1:+${3:-tautline.io/gpu-milli}: $1}}}," \
        "command: [sh, -c, '$see; exec sh -c \"sleep 86400; :\" program-of-\$HOSTNAME']}"
}

# deployment NAME REPLICAS MILLI [NAMESPACE]
deployment() {
    kubectl -n "${4:-vision}" apply -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: $2
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1, milli: "$3"}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - $(container "$3")
YAML
}

# gpu_pod NAME APP MILLI [IMAGE] [NODE]
gpu_pod() {
    cat <<YAML
---
apiVersion: v1
kind: Pod
metadata: {name: "$1", namespace: vision, labels: {app: "$2"${3:+, milli: '$3'}}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {${5:+kubernetes.io/hostname: $5}}
  containers:
  - $(container "$3" "${4:-}")
YAML
}

pod_of_image() { gpu_pod "$1" image "$3" "$2" "$4" | kubectl create -f - >/dev/null; }

# deployed NAME REPLICAS [NAMESPACE]
deployed() {
    local pods
    pods=$(kubectl -n "${3:-vision}" get pods -l "app=$1" --no-headers)
    echo "$pods"
    kubectl -n "${3:-vision}" get events --field-selector type=Warning --sort-by=.lastTimestamp | tail -3
    (($(grep -c Running <<<"$pods") == $2))
}

running_pods() {
    local name
    for name in "$@"; do
        kubectl -n vision get pod "$name" --no-headers | tee /dev/stderr | grep -q Running || return 1
    done
}

refused_by_quota() {
    kubectl -n quota get events --field-selector reason=FailedCreate | tee /dev/stderr | grep -q 'exceeded quota: gpu'
}

no_pods() {
    local pods
    pods=$(kubectl -n vision get pods --no-headers 2>/dev/null)
    echo "$pods"
    [[ -z $pods ]]
}

# records: pod, node, milli, record and phase of each pod that has asked for cards and has not ended.
records() {
    kubectl get pods -A -l milli -o json | jq -r '.items[] | select(.status.phase | IN("Pending", "Running"))
        | "\(.metadata.namespace)/\(.metadata.name) \(.spec.nodeName // "-") \(.metadata.labels.milli) " +
          "\(.metadata.annotations["tautline.io/gpu-devices"] // "-") \(.status.phase)"'
}

# seen POD: what the container has printed.
seen() { kubectl -n "${2:-vision}" logs "$1"; }

# expected NODE RECORD: what the container must print.
expected() {
    local part names=()
    for part in ${2//,/ }; do
        names+=("${part%%:*}")
    done
    if [[ $1 == n1 ]]; then
        echo "void $(for part in "${names[@]}"; do
            jq -r --arg uuid "$part" '.cards | map(.uuid) | index($uuid) | "nvidia\(.)"' "$run/n1/fake/cards.json"
        done | sort | paste -sd ' ')"
    else
        (IFS=, && echo "${names[*]}")
    fi
}

# records_hold: each running container sees the cards of its record, and no card is given twice.
records_hold() {
    local pod node milli record phase all printed wanted
    all=$(records)
    echo "$all"
    awk '$4 != "-" {
        n = split($4, parts, ",")
        for (i = 1; i <= n; i++) {split(parts[i], part, ":"); used[$2 " " part[1]] += part[2]; sum[$1] += part[2]}
        if (sum[$1] != $3) {print "the record of " $1 " is not " $3; bad = 1}
    }
    END {
        for (card in used) if (used[card] > 1000) {print "card " card " is given " used[card]; bad = 1}
        exit bad
    }' <<<"$all" || fail "a card is given twice, or a record is wrong: $all"
    mkdir -p "$run/seen"
    while read -r pod node milli record phase; do
        [[ $phase == Running && ! -e $run/seen/${pod/\//.} ]] || continue
        printed=$(seen "${pod#*/}" "${pod%/*}" 2>/dev/null) || continue
        [[ -n $printed ]] || return 1
        wanted=$(expected "$node" "$record")
        [[ "$printed" == "$wanted" ]] || fail "$pod on $node has the record $record, and sees: $printed; not: $wanted"
        touch "$run/seen/${pod/\//.}"
    done <<<"$all"
}

# binding_of POD: compliance and reason.
binding_of() {
    kubectl -n vision get constraintpolicybindings -o json | jq -r --arg pod "$1" '.items[]
        | select([.spec.targets[]?.name] | index($pod)) | "\(.status.compliance) \(.status | tostring)"'
}

binding_says() {
    local said
    said=$(binding_of "$1")
    echo "$said"
    [[ $said == $2\ * && $said == *"$3"* ]]
}

# A process of a container takes 30 GiB of the 20 that it has.
over_use() {
    local pod node record started
    read -r pod node _ record _ < <(records | grep -m1 ' n1 ')
    pod=${pod#*/}
    # The API server does not know the owners' kind for up to a minute after its definition.
    wait_for 90 "the binding of $pod is compliant" binding_says "$pod" Compliant ''
    change_cards n1 ".processes = [{match: \"program-of-$pod\", card: \"${record%%:*}\", memoryMiB: 30720, sm: 20}]"
    started=$EPOCHREALTIME
    wait_for 20 "the over-use of $pod is a violation" binding_says "$pod" Violation uses
    say "flagged after $(((${EPOCHREALTIME/./} - ${started/./}) / 1000)) ms: $(binding_of "$pod" | grep -o 'uses [^"]*')"
    (((${EPOCHREALTIME/./} - ${started/./}) / 1000 <= 10000)) || fail "over-use is flagged later than 10 s"
    "$tautline" gpu top | grep "$pod" >&2
    change_cards n1 '.processes = []'
    wait_for 30 "the binding of $pod is compliant again" binding_says "$pod" Compliant ''
}

# A pod of CastSlice's kind: a whole GPU of NVIDIA's, and an annotation.
whole_gpu_pod() {
    kubectl create -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: whole, namespace: vision, labels: {app: image, milli: "250"}, annotations: {castops.io/optimize: "true"}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - $(container 1 localhost/cuda:1 nvidia.com/gpu)
YAML
}

# Slices of n2's cards as MIG instances: three quarters are three instances, which go with their pods.
mig_slices() {
    local i names=(mig-1 mig-2 mig-3)
    change_cards n2 '.cards |= map(.mig = [])'
    kubectl label node n2 tautline.io/gpu-limits=mig >/dev/null
    wait_for 30 "n2 plans MIG instances" plans_mig
    for i in "${names[@]}"; do
        pod_of_image "$i" localhost/busybox:1 250 n2
    done
    wait_for 60 "three quarters run" running_pods "${names[@]}"
    wait_for 20 "each sees an instance of its own" own_instances "${names[@]}"
    kubectl -n vision delete pod "${names[@]}" --now >/dev/null
    wait_for 60 "the instances are gone" no_instances
    change_cards n2 '.cards |= map(del(.mig))'
    kubectl label node n2 tautline.io/gpu-limits- >/dev/null
    wait_for 30 "n2 has whole cards again" plans_no_mig
}

n2_inventory() { kubectl get node n2 -o 'jsonpath={.metadata.annotations.tautline\.io/gpu-inventory}'; }
plans_mig() { n2_inventory | tee /dev/stderr | jq -e '.limits == "mig" and all(.cards[]; .mig and (.fault | not))' >/dev/null; }
plans_no_mig() { n2_inventory | tee /dev/stderr | jq -e '.limits == "none" and all(.cards[]; (.mig or .fault) | not)' >/dev/null; }

own_instances() {
    local name all
    records | grep mig-
    all=$(for name in "$@"; do seen "$name"; done)
    echo "$all"
    [[ $(grep -c '^MIG-' <<<"$all") == $# && $(sort -u <<<"$all" | wc -l) == $# ]] &&
        [[ $(records | grep -c 'mig-.*:250@') == $# ]]
}

no_instances() {
    local state
    state=$("$here/on" n2 cat /run/tautline/fake-mig.json)
    echo "$state"
    jq -e 'all(.[]; .now == [])' <<<"$state" >/dev/null
}

# The card of a pod gets a fault: the pod is evicted, and gets another card.
break_card() {
    local pod node record card milli
    deployment drained 2 1000
    wait_for 60 "two whole cards are given" deployed drained 2
    read -r pod node _ record _ < <(records | grep -m1 '^vision/drained')
    card=${record%%:*}
    milli=$(jq '.cards | length * 1000' "$run/$node/fake/cards.json")
    change_cards "$node" "(.cards[] | select(.uuid == \"$card\")).xids = [79]"
    wait_for 20 "the binding of ${pod#*/} is a violation" binding_says "${pod#*/}" Violation Xid79
    wait_for 60 "the pods are on other cards" drained "$card"
    wait_for 20 "the card is out of the node's capacity" allocatable "$node" $((milli - 1000))
    # The reader forgets a fault when it restarts.
    change_cards "$node" "(.cards[] | select(.uuid == \"$card\")).xids = []"
    kubectl -n tautline-system delete pod "$(agent_of "$node")" --wait=false >/dev/null
    wait_for 60 "the card is back" allocatable "$node" "$milli"
}

drained() {
    local all
    all=$(records)
    echo "$all"
    (($(grep -c '^vision/drained.* Running$' <<<"$all") == 2)) && ! grep '^vision/drained' <<<"$all" | grep -q "$1"
}

agent_of() {
    kubectl -n tautline-system get pods -l app.kubernetes.io/name=tautline-gpu-agent --field-selector "spec.nodeName=$1" \
        -o 'jsonpath={.items[0].metadata.name}'
}

# started: name and start of each container.
started() {
    kubectl -n vision get pods -l app="$1" -o json |
        jq -r '.items[] | "\(.metadata.name) \(.status.containerStatuses[0].containerID) \(.status.containerStatuses[0].restartCount)"'
}

agent_dies() {
    local before
    gpu_pod stays waiting 500 '' n1 | kubectl create -f - >/dev/null
    wait_for 60 "a pod runs" running_pods stays
    before=$(started waiting)
    kubectl -n tautline-system patch daemonset tautline-gpu-agent --type=merge \
        -p '{"spec": {"template": {"spec": {"nodeSelector": {"away": "yes"}}}}}' >/dev/null
    wait_for 90 "the agents are gone" no_agents
    # Until the node says so, pods come and the kubelet refuses them: they are Failed, and their
    # controllers make others.
    wait_for 30 "the node gives out no cards" allocatable n1 0
    gpu_pod waits waiting 500 '' n1 | kubectl create -f - >/dev/null
    wait_for 60 "a new pod waits, and an event says why" waits
    [[ $(started waiting) == *"$before"* ]] || fail "a container of before the agent's end is not as it was: $(started waiting)"
    kubectl -n tautline-system patch daemonset tautline-gpu-agent --type=json \
        -p '[{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]' >/dev/null
    wait_for 90 "the waiting pod runs" running_pods waits
    [[ $(started waiting) == *"$before"* ]] || fail "a container of before the agent's end is not as it was: $(started waiting)"
    wait_for 20 "both have their cards" records_hold
    kubectl -n vision delete pods --all --now >/dev/null
    wait_for 90 "all pods Ready" gpu_pods_ready
}

no_agents() {
    local pods
    pods=$(kubectl -n tautline-system get pods -l app.kubernetes.io/name=tautline-gpu-agent --no-headers 2>/dev/null)
    echo "$pods"
    [[ -z $pods ]]
}

waits() {
    local events
    ! kubectl -n vision get pod waits --no-headers | tee /dev/stderr | grep -q Running || fail "a pod got cards without an agent"
    events=$(kubectl -n vision get events --field-selector involvedObject.name=waits)
    echo "$events"
    grep -q 'Warning' <<<"$events"
}

# Quarters, halves, whole cards and pairs: 40 pods, of which some end in each round. Now and then an agent ends.
come_and_go() {
    local until=$((SECONDS + churn_seconds)) round=0 alive names new i made=0
    local sizes=(250 250 250 250 250 250 500 500 1000 2000)
    while ((SECONDS < until)); do
        round=$((round + 1))
        alive=$(kubectl -n vision get pods -l app=churn --no-headers 2>/dev/null | wc -l)
        new=''
        for ((i = alive; i < 40; i++)); do
            made=$((made + 1))
            new+=$(gpu_pod "churn-$churns-$made" churn "${sizes[RANDOM % ${#sizes[@]}]}")$'\n'
        done
        [[ -z $new ]] || kubectl create -f - <<<"$new" >/dev/null
        wait_for 60 "the containers see their cards" records_hold
        if ((round % 4 == 2)); then
            kill_agent "$((round % 8 == 2 ? 1 : 2))" "$round"
        fi
        names=$(kubectl -n vision get pods -l app=churn -o name | shuf -n 12)
        # shellcheck disable=SC2086
        [[ -z $names ]] || kubectl -n vision delete --now --wait=false --ignore-not-found $names >/dev/null
        failed_pods
    done
    churns=$((churns + 1))
    wait_for 90 "the agents are back" gpu_pods_ready
    wait_for 120 "every pod that fits runs" rest_settled
    wait_for 60 "the containers see their cards" records_hold
    say "$made pods in $round rounds"
    kubectl -n vision delete pods --all --now >/dev/null
    wait_for 60 "the pods are gone" no_pods
    wait_for 60 "nothing is left of them" nothing_left
    # A pod on all cards of a node: nothing is reserved.
    { gpu_pod all-1 all 8000 '' n1 && gpu_pod all-2 all 2000 '' n2; } | kubectl create -f - >/dev/null
    wait_for 60 "every card is free" running_pods all-1 all-2
    wait_for 20 "two containers see all cards" records_hold
    kubectl -n vision delete pods --all --now >/dev/null
    rm -r "$run/seen"
}
churns=0

# kill_agent N ROUND: the process, or the pod.
kill_agent() {
    if (($2 % 3 == 0)); then
        kubectl -n tautline-system delete pod "$(agent_of "n$1")" --wait=false >/dev/null
    else
        "$here/on" "n$1" pkill -KILL -f '^/tautline agent gpu' || true
    fi
}

# A pod that the kubelet refuses is Failed for good: only while no agent runs, and then it says so.
failed_pods() {
    local pods
    pods=$(kubectl -n vision get pods --field-selector status.phase=Failed -o json |
        jq -r '.items[] | select(.metadata.deletionTimestamp | not)
            | "\(.metadata.name) \(.status.reason): \(.status.message)"')
    pods=$(grep -v 'UnexpectedAdmissionError\|OutOftautline' <<<"$pods" || true)
    [[ -z $pods ]] || fail "a pod failed: $pods"
    kubectl -n vision delete pods --field-selector status.phase=Failed --wait=false >/dev/null 2>&1 || true
}

# No pod starts any more: those that wait do not fit.
rest_settled() {
    local pods
    failed_pods
    pods=$(kubectl -n vision get pods --no-headers)
    echo "$pods"
    ! grep -q 'ContainerCreating\|Error\|Terminating' <<<"$pods"
}

nothing_left() {
    local node left
    for node in n1 n2; do
        left=$("$here/on" "$node" sh -c 'ls /var/run/cdi | grep "^tautline.io-gpu-"')
        [[ -z $left ]] || {
            echo "CDI specs on $node: $left"
            return 1
        }
    done
    left=$(records)
    echo "$left"
    [[ -z $left ]]
}

# ticks FOLDER...: of processes of n1, in /proc, all together.
ticks() { echo "$(($("$here/on" n1 awk '{print $14 + $15}' "${@/%//stat}" | paste -sd+)))"; }

# Memory and time of the agent of n1, with 40 containers.
at_rest() {
    local i pods='' pid pids before after
    for i in {1..40}; do
        pods+=$(gpu_pod "rest-$i" rest 200 '' n1)$'\n'
    done
    kubectl create -f - <<<"$pods" >/dev/null
    wait_for 120 "40 pods run" deployed rest 40
    sleep 10
    mapfile -t pids < <("$here/on" n1 pgrep -f '^/tautline agent gpu|tautline-nvml')
    before=$(ticks "${pids[@]/#//proc/}")
    sleep 20
    after=$(ticks "${pids[@]/#//proc/}")
    for pid in "${pids[@]}"; do
        say "at rest: $("$here/on" n1 sh -c "tr '\\0' ' ' </proc/$pid/cmdline | cut -c1-30; grep -E 'VmRSS|RssAnon' /proc/$pid/status" | paste -sd ' ')"
    done
    say "at rest: $((after - before)) ticks of CPU time in 20 s"
    kubectl -n vision delete pods --all --now >/dev/null
    wait_for 60 "the pods are gone" no_pods
}

show_gpu_state() {
    kubectl get pods -A -o wide || true
    records || true
    kubectl -n vision get events --sort-by=.lastTimestamp 2>/dev/null | tail -20 || true
    kubectl -n vision get constraintpolicybindings -o wide 2>/dev/null | tail -20 || true
    local node
    for node in n1 n2 n3; do
        echo "--- agent of $node"
        kubectl -n tautline-system logs "$(agent_of "$node")" --tail=15 || true
    done
} >&2
