# shellcheck shell=bash disable=SC2154,SC2034,SC2016
# What `gpu-test` does and checks where cards are DRA devices. Checks say why they fail, for `wait_for`.

deliver_by_dra() {
    "$bin/helm" upgrade tautline "$repo/deploy/chart" --namespace tautline-system --reuse-values \
        --set gpu.delivery=dra --set gpu.evictAfter=1s --set webhooks.gpuSlices=false --set-json 'admission.extraArgs=[]' >/dev/null
}

# devices NODE COUNT
devices() {
    local found
    found=$(kubectl get resourceslices --field-selector "spec.nodeName=$1" -o json |
        jq '[.items[] | select(.spec.driver == "gpu.tautline.io") | .spec.devices[]?] | length')
    echo "$1 has $found devices"
    ((found == $2))
}

no_plugin() {
    local node
    for node in n1 n2; do
        allocatable "$node" 0 || allocatable "$node" '' || return 1
    done
}

claim_templates() {
    kubectl apply -f - >/dev/null <<YAML
$(for namespace in vision quota; do
        for milli in 1 250 500 1000; do
            claim_template "$namespace" "part-$milli" "capacity: {requests: {milli: \"$milli\"}}"
        done
    done)
$(claim_template vision too-many 'count: 20')
$(claim_template vision other-product 'selectors: [{cel: {expression: "device.attributes[\"gpu.tautline.io\"].productName == \"NVIDIA L4\""}}]')
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: claims, namespace: quota}
spec:
  hard: {gpu.tautline.io.deviceclass.resource.k8s.io/devices: "4"}
YAML
}

# claim_template NAMESPACE NAME REQUEST
claim_template() {
    cat <<YAML
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: $2, namespace: $1}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: ${4:-gpu.tautline.io}, $3}}]
YAML
}

# claiming_pod NAME APP TEMPLATE [NODE]
claiming_pod() {
    cat <<YAML
---
apiVersion: v1
kind: Pod
metadata: {name: "$1", namespace: vision, labels: {app: "$2", claims: "$3", milli: "0"}}
spec: $(claiming_spec "$3" "${4:-}")
YAML
}

# claiming_spec TEMPLATE [NODE]: of a pod, in one line.
claiming_spec() {
    local main
    main=$(container '')
    echo "{terminationGracePeriodSeconds: 0, nodeSelector: {${2:+kubernetes.io/hostname: $2}}," \
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: $1}]," \
        "containers: [${main/resources: \{limits: \{\}\}/resources: \{claims: [\{name: gpu\}]\}}]}"
}

# claiming_deployment NAME REPLICAS TEMPLATE [NAMESPACE]; with an empty template, of whole cards by extended resource.
claiming_deployment() {
    local spec
    if [[ -n $3 ]]; then
        spec=$(claiming_spec "$3")
    else
        spec="{terminationGracePeriodSeconds: 0, containers: [$(container 1 '' tautline.io/gpu)]}"
    fi
    kubectl apply -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1, namespace: ${4:-vision}}
spec:
  replicas: $2
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1, claims: "$3", milli: "0"}}
    spec: $spec
YAML
}

# allocations: claim, node, UUID of the card, milli, and the pod with its phase, for each device that is allocated.
allocations() {
    jq -rn --slurpfile claims <(kubectl get resourceclaims -A -o json) --slurpfile pods <(kubectl get pods -A -o json) \
        --slurpfile slices <(kubectl get resourceslices -o json) '
        ([$slices[0].items[].spec | .pool.name as $pool | .devices[]?
            | {key: "\($pool)/\(.name)", value: .attributes.uuid.string}] | from_entries) as $cards
        | ([$pods[0].items[] | {key: .metadata.uid, value: "\(.metadata.namespace)/\(.metadata.name) \(.status.phase)"}]
            | from_entries) as $phases
        | $claims[0].items[] | . as $claim | .status.allocation.devices.results[]?
        | "\($claim.metadata.namespace)/\($claim.metadata.name) \(.pool) \($cards["\(.pool)/\(.device)"] // .device) " +
          "\(.consumedCapacity.milli // "instance" | sub("^1k$"; "1000")) " +
          "\($phases[$claim.status.reservedFor[0]?.uid // ""] // "- -")"'
}

# claims_hold: each running container sees the card of its claim, and no card is given beyond its 1000.
claims_hold() {
    local claim node card milli pod phase all printed wanted
    all=$(allocations)
    echo "$all"
    awk '$4 != "instance" {used[$2 " " $3] += $4}
        END {for (card in used) if (used[card] > 1000) {print "card " card " is given " used[card]; bad = 1}; exit bad}' \
        <<<"$all" || fail "a card is given beyond its 1000: $all"
    mkdir -p "$run/seen"
    while read -r claim node card milli pod phase; do
        [[ $phase == Running && $milli != instance && ! -e $run/seen/${pod/\//.} ]] || continue
        printed=$(seen "${pod#*/}" "${pod%/*}" 2>/dev/null) || continue
        [[ -n $printed ]] || return 1
        wanted=$(expected "$node" "$card:$milli")
        [[ "$printed" == "$wanted" ]] || fail "$pod on $node has the claim $claim of card $card, and sees: $printed; not: $wanted"
        touch "$run/seen/${pod/\//.}"
    done <<<"$all"
}

# statuses: the claims of an app say on which card they are, and how much memory they have.
statuses() {
    local all
    all=$(kubectl -n vision get resourceclaims -o json |
        jq -c ".items[] | select(.metadata.name | startswith(\"$1\")) | [.status.devices[]?.data | .card, .milli, .memoryMiB]")
    echo "$all"
    (($(grep -c 'GPU-.*,250,2[0-9]*' <<<"$all") == $2))
}

# says_of POD TEXT: an event of a pod of the namespace vision, or of the namespace $3.
says_of() {
    local events
    events=$(kubectl -n "${3:-vision}" get events --field-selector "involvedObject.name=$1")
    echo "$events"
    grep -q "$2" <<<"$events"
}

refused_claim() {
    kubectl -n quota get events --field-selector reason=FailedResourceClaimCreation | tee /dev/stderr | grep -q 'exceeded quota: claims'
}

refuses_the_old_way() {
    local said
    said=$(gpu_pod refused old 250 | kubectl create -f - 2>&1) && fail "a pod with tautline.io/gpu-milli is admitted"
    [[ $said == *'capacity.requests.milli'* ]] || fail "a pod with tautline.io/gpu-milli is refused without the fix: $said"
}

bad_claims() {
    local said
    said=$(claim_template vision too-much 'capacity: {requests: {milli: "1001"}}' | kubectl create -f - 2>&1) &&
        fail "a claim for more than a card is admitted"
    [[ $said == *'not 1 to 1000. Leave capacity out'* ]] || fail "a claim for more than a card is refused without the fix: $said"
    { claiming_pod large bad too-many && claiming_pod l4 bad other-product; } | kubectl create -f - >/dev/null
    wait_for 30 "a claim for more cards than a node has waits, and an event says why" says_of large 'FailedScheduling'
    wait_for 30 "a claim for another product waits, and an event says why" says_of l4 'FailedScheduling'
    kubectl -n vision delete pod large l4 --now >/dev/null
}

# break_claimed_card: the pod of a faulty card goes to another card.
break_claimed_card() {
    local node card
    claiming_deployment drained 2 part-1000
    wait_for 60 "two whole cards are given" deployed drained 2
    read -r node card < <(allocations | awk '$5 ~ /^vision\/drained/ {print $2, $3; exit}')
    change_cards "$node" "(.cards[] | select(.uuid == \"$card\")).xids = [79]"
    wait_for 90 "the pods are on other cards" off_the_card "$card"
    kubectl get resourceslices -o json | jq -e --arg card "$card" '[.items[].spec.devices[]?
        | select(.attributes.uuid.string == $card) | .taints[].effect] | sort == ["NoExecute", "NoSchedule"]' >/dev/null ||
        fail "the device of the faulty card has no taints: $(kubectl get resourceslices -o json | jq -c '.items[].spec.devices[]?.taints')"
    # The reader forgets a fault when it restarts.
    change_cards "$node" "(.cards[] | select(.uuid == \"$card\")).xids = []"
    kubectl -n tautline-system delete pod "$(agent_of "$node")" --wait=false >/dev/null
    wait_for 60 "the card is back" no_taints
    kubectl -n vision delete deployment drained >/dev/null
}

off_the_card() {
    local all
    all=$(allocations)
    echo "$all"
    (($(grep -c ' vision/drained[^ ]* Running$' <<<"$all") == 2)) && ! grep 'vision/drained' <<<"$all" | grep -q "$1"
}

no_taints() {
    kubectl get resourceslices -o json | jq -c '[.items[].spec.devices[]?.taints // empty]' | tee /dev/stderr | grep -qx '\[\]'
}

claimed_mig_slices() {
    local names=(mig-1 mig-2 mig-3) name
    change_cards n2 '.cards |= map(.mig = [])'
    kubectl label node n2 tautline.io/gpu-limits=mig >/dev/null
    wait_for 30 "n2 offers MIG instances" offers_instances
    { claim_template vision instance \
        'selectors: [{cel: {expression: "device.attributes[\"gpu.tautline.io\"].profile == \"2g.20gb\""}}]' mig.gpu.tautline.io &&
        for name in "${names[@]}"; do claiming_pod "$name" mig instance n2; done; } | kubectl create -f - >/dev/null
    wait_for 60 "three instances are given" running_pods "${names[@]}"
    wait_for 20 "each sees an instance of its own" sees_instances "${names[@]}"
    kubectl -n vision delete pod "${names[@]}" --now >/dev/null
    wait_for 60 "the instances are gone" no_instances
    change_cards n2 '.cards |= map(del(.mig))'
    kubectl label node n2 tautline.io/gpu-limits- >/dev/null
    wait_for 30 "n2 has whole cards again" devices n2 2
}

offers_instances() {
    local profiles
    profiles=$(kubectl get resourceslices --field-selector spec.nodeName=n2 -o json |
        jq -r '.items[].spec.devices[]?.attributes.profile.string // "none"' | sort | uniq -c)
    echo "$profiles"
    grep -q '2g.20gb' <<<"$profiles" && ! grep -q none <<<"$profiles"
}

sees_instances() {
    local name all
    all=$(for name in "$@"; do seen "$name"; done)
    echo "$all"
    [[ $(grep -c '^MIG-' <<<"$all") == $# && $(sort -u <<<"$all" | wc -l) == $# ]]
}

# Without agents, containers of claims go on and new ones wait; with them these run.
agents_away() {
    local before
    claiming_pod stays waiting part-500 n1 | kubectl create -f - >/dev/null
    wait_for 60 "a pod runs" running_pods stays
    before=$(started waiting)
    kubectl -n tautline-system patch daemonset tautline-gpu-agent --type=merge \
        -p '{"spec": {"template": {"spec": {"nodeSelector": {"away": "yes"}}}}}' >/dev/null
    wait_for 90 "the agents are gone" no_agents
    claiming_pod waits waiting part-500 n1 | kubectl create -f - >/dev/null
    wait_for 60 "a new pod waits, and an event says why" waits
    kubectl -n tautline-system patch daemonset tautline-gpu-agent --type=json \
        -p '[{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]' >/dev/null
    wait_for 90 "the waiting pod runs" running_pods waits
    [[ $(started waiting) == *"$before"* ]] || fail "a container of before the agent's end is not as it was: $(started waiting)"
    wait_for 20 "both have their cards" claims_hold
    kubectl -n vision delete pods stays waits --now >/dev/null
    wait_for 90 "all pods Ready" gpu_pods_ready
}

# Quarters, halves and whole cards by claims: 40 pods, of which some end in each round, while agents, kubelets and providers
# are killed.
claims_come_and_go() {
    local until=$((SECONDS + churn_seconds)) round=0 alive names new i made=0
    local sizes=(part-250 part-250 part-250 part-250 part-500 part-1000)
    while ((SECONDS < until)); do
        round=$((round + 1))
        alive=$(kubectl -n vision get pods -l app=churn --no-headers 2>/dev/null | wc -l)
        new=''
        for ((i = alive; i < 40; i++)); do
            made=$((made + 1))
            new+=$(claiming_pod "claims-$made" churn "${sizes[RANDOM % ${#sizes[@]}]}")$'\n'
        done
        [[ -z $new ]] || kubectl create -f - <<<"$new" >/dev/null
        wait_for 60 "the containers see their cards" claims_hold
        case $((round % 6)) in
            1) kill_agent 1 "$round" ;;
            3) "$here/on" n2 pkill -KILL -x kubelet || true ;;
            4) kubectl -n tautline-system delete pods -l app.kubernetes.io/name=tautline-gpu-slice --wait=false >/dev/null ;;
            5) kill_agent 2 "$round" ;;
        esac
        names=$(kubectl -n vision get pods -l app=churn -o name | shuf -n 12)
        # shellcheck disable=SC2086
        [[ -z $names ]] || kubectl -n vision delete --now --wait=false --ignore-not-found $names >/dev/null
    done
    wait_for 90 "the agents are back" gpu_pods_ready
    wait_for 120 "every pod that fits runs" rest_settled
    wait_for 60 "the containers see their cards" claims_hold
    say "$made pods in $round rounds"
    kubectl -n vision delete pods --all --now >/dev/null
    wait_for 90 "the pods are gone" no_pods
    wait_for 60 "nothing prepared is left" no_claims_left
    rm -r "$run/seen"
}

no_claims_left() {
    local node left
    nothing_left || return 1
    for node in n1 n2; do
        left=$("$here/on" "$node" cat /run/tautline/claims.json 2>/dev/null || echo '{}')
        echo "prepared on $node: $left"
        [[ $left == '{}' ]] || return 1
    done
    left=$(allocations)
    echo "$left"
    [[ -z $left ]]
}

no_slices() {
    local slices
    slices=$(kubectl get resourceslices -o name)
    echo "$slices"
    [[ -z $slices ]]
}
