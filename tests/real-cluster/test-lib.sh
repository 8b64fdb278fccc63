# shellcheck shell=bash
# What `test` does and checks. Checks say why they fail, for `wait_for`.

delays() {
    # In one write: the network reads the file whenever it changes.
    printf '%s\n' "$@" >"$REAL_CLUSTER_DELAYS.new"
    mv "$REAL_CLUSTER_DELAYS.new" "$REAL_CLUSTER_DELAYS"
}

install_chart() {
    installed_at=$EPOCHSECONDS
    "$bin/helm" install tautline "$repo/deploy/chart" --namespace tautline-system --create-namespace \
        --set 'controller.extraArgs={--eviction-cool-down=10s}' --set listenHost=0.0.0.0 \
        --set networkPolicy.enabled=true --set clusters.enabled=true --set "providers.latency.extraArgs={--external-cidrs=$host/32}" >/dev/null
}

# A server outside the cluster, on this machine, and a Deployment whose pod must be within 20 ms of it.
start_outside() {
    mkdir -p "$run/empty"
    start host database "$debian/bin/busybox" httpd -f -p "$host:5432" -h "$run/empty"
    kubectl apply -f - >/dev/null <<YAML
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: database-1, namespace: shop, labels: {kubernetes.io/service-name: database, app: database}}
addressType: IPv4
ports: [{port: 5432}]
endpoints: [{addresses: ["$host"]}]
YAML
    start_near orders 'kind: Endpoint, labelSelector: {matchLabels: {app: database}}'
}

# The cluster `east`, which is this one again: its API server knows a pod on a node that has this machine's address. And a
# Deployment whose pod must be within 20 ms of that node.
start_east() {
    local status="{\"hostIP\": \"$host\", \"hostIPs\": [{\"ip\": \"$host\"}]}"
    kubectl apply -f "$repo/deploy/with-clusters/peer.yaml" >/dev/null
    kubectl -n shop create rolebinding tautline-peer-reader --clusterrole=tautline-peer-reader \
        --serviceaccount=tautline-peer:tautline-peer >/dev/null
    kubectl -n shop apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: ledger, labels: {app: ledger}}
spec: {schedulerName: none, containers: [{name: main, image: "localhost/pause:1"}]}
YAML
    kubectl -n shop patch pod ledger --subresource=status -p "{\"status\": $status}" >/dev/null
    cat >"$run/east.kubeconfig" <<YAML
apiVersion: v1
kind: Config
current-context: east
contexts: [{name: east, context: {cluster: east, user: peer}}]
clusters:
- name: east
  cluster: {server: "$REAL_CLUSTER_API_SERVER", certificate-authority-data: $(base64 -w0 "$run/pki/ca.crt")}
users: [{name: peer, user: {token: $(kubectl -n tautline-peer create token tautline-peer)}}]
YAML
    kubectl -n tautline-clusters create secret generic east --from-file=kubeconfig="$run/east.kubeconfig" >/dev/null
    kubectl -n tautline-clusters annotate secret east tautline.io/node-port=5432 >/dev/null
    kubectl -n tautline-clusters label secret east tautline.io/cluster=east >/dev/null
    start_near invoices 'kind: Pod, cluster: east, labelSelector: {matchLabels: {app: ledger}}'
}

# start_near APP TARGET: an offer for the pods of APP, with a target, and a Deployment of one pod.
start_near() {
    kubectl apply -f - >/dev/null <<YAML
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: $1, namespace: shop}
spec:
  targets:
  - {name: pods, kind: Pod, labelSelector: {matchLabels: {app: $1}}}
  - {name: peer, $2}
  policies: [near-server]
  period: 5s
  grace: 10s
  violationPolicy: Evict
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1, namespace: shop}
spec:
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "localhost/pause:1"}]
YAML
}

end_outside() {
    local app
    for app in orders invoices; do
        kubectl -n shop delete "deployment/$app" "constraintpolicyoffer/$app" >/dev/null
    done
    kubectl -n shop delete endpointslice/database-1 pod/ledger rolebinding/tautline-peer-reader >/dev/null
    kubectl -n tautline-clusters delete secret/east >/dev/null
    kubectl delete -f "$repo/deploy/with-clusters/peer.yaml" >/dev/null
    kill "$(cat "$run/database.pid")"
}

# connects SERVICE PORT: a pod of the namespace default opens a connection to it.
connects() {
    local address
    address=$(kubectl -n tautline-system get service "$1" -o 'jsonpath={.spec.clusterIP}')
    kubectl -n default exec probe -- sh -c "echo | nc -w 3 $address $2 >/dev/null"
}

# The webhooks are for the API server, wherever it is; providers are for Tautline alone.
network_policies_hold() {
    kubectl -n default get pod probe >/dev/null 2>&1 ||
        kubectl -n default run probe --image=localhost/busybox:1 --command -- sleep 3600 >/dev/null
    kubectl -n default wait --for=condition=Ready pod/probe --timeout=0s >/dev/null || return 1
    connects tautline-admission 443 && ! connects tautline-latency 5309
}

# The commands of the tutorial, one block after the other. Nodes here have no IPv6, and `watch` has no end.
run_tutorial() {
    local block dir=$out/tutorial name
    rm -rf "$dir" && mkdir -p "$dir/bin"
    for name in tautline helm; do
        ln -s "$([[ $name == helm ]] && echo "$bin/helm" || echo "$tautline")" "$dir/$name"
    done
    cat >"$dir/bin/helm" <<SH
#!/bin/sh
[ "\$1" = install ] && set -- "\$@" --set listenHost=0.0.0.0
exec "$dir/helm" "\$@"
SH
    cat >"$dir/bin/tautline" <<SH
#!/bin/sh
[ "\$1" = watch ] || exec "$dir/tautline" "\$@"
timeout 5 "$dir/tautline" "\$@" || [ \$? = 124 ]
SH
    ln -s "$REAL_CLUSTER_KUBECTL" "$dir/bin/kubectl"
    chmod +x "$dir/bin/helm" "$dir/bin/tautline"
    blocks tutorial.md "$dir"
    for block in "$dir"/*.sh; do
        # A pod's name is the reader's.
        sed -i 's#shop/POD#shop/$(kubectl -n shop get pods -l app=client -o "jsonpath={.items[0].metadata.name}")#' "$block"
        wait_for 90 "the commands before have their effect" tutorial_settled "$block"
        (cd "$repo" && PATH=$dir/bin:$PATH timeout 180 bash -euo pipefail "$block") >"$block.out" 2>&1 || {
            cat "$block" "$block.out" >&2
            fail "this block of docs/tutorial.md fails"
        }
        printed_as_said tutorial.md "${block%.sh}.text" "$block.out"
    done
}

# blocks PAGE DIR: writes the page's blocks: NN.sh are commands, NN.text the output that follows.
blocks() {
    awk -v dir="$2" '/^```(sh|text)$/ {kind = substr($0, 4); n += kind == "sh"
                         file = sprintf("%s/%02d.%s", dir, n, kind); next}
                     /^```$/ {file = ""} file {print > file}' "$repo/docs/$1"
}

# The script of the quickstart as a reader runs it, with this cluster in place of one of kind's.
run_quickstart() {
    local text dir=$out/quickstart
    rm -rf "$dir" && mkdir "$dir"
    quickstart current >"$dir/printed" 2>&1 || {
        cat "$dir/printed" >&2
        fail "the quickstart fails"
    }
    blocks howto/quickstart.md "$dir"
    for text in "$dir"/*.text; do
        printed_as_said howto/quickstart.md "$text" "$dir/printed"
    done
    quickstart delete current >"$dir/deleted" 2>&1 || {
        cat "$dir/deleted" >&2
        fail "the quickstart's delete fails"
    }
}

quickstart() { PATH=$(dirname "$tautline"):$PATH timeout 180 "$repo/examples/quickstart/run" "$@"; }

# The next block shows what the earlier ones did: the measured matrix, and bindings of running pods.
tutorial_settled() {
    case $(<"$1") in
        *matrix*) measured n1 n2 2000 && measured n1 n3 4000 && measured n2 n3 4000 ;;
        *"get bindings"*) kubectl -n shop rollout status deployment/client --timeout=1s && compliance Compliant ;;
    esac
}

# printed_as_said PAGE EXPECTED PRINTED: each line of the page's block, but for figures, names and marks, and for the age of
# costs, which the first pod of a kind has not.
printed_as_said() {
    local line printed
    [[ -e $2 ]] || return 0
    printed=$'\n'$(masked <"$3")$'\n'
    while IFS= read -r line; do
        [[ $printed == *$'\n'"$(masked <<<"$line")"$'\n'* ]] && continue
        cat "$3" >&2
        fail "docs/$1 has a line of output that is not printed: $line"
    done <"$2"
}

masked() {
    sed -E 's/[·░▒▓█]//g; s/-[0-9a-z]{5,10}(-[0-9a-z]{5})?//g; s/[0-9]+([.][0-9]+)?(ms|us|s|m)?/N/g; s/, costs N old$//; s/ +/ /g; s/ $//'
}

all_pods_ready() {
    local pods
    pods=$(kubectl -n tautline-system get pods --no-headers)
    echo "$pods"
    # Two replicas of four components, and three agents.
    (($(grep -c Running <<<"$pods") >= 13)) && awk '{split($2, ready, "/"); if (ready[1] != ready[2]) exit 1}' <<<"$pods"
}

# measured A B MICROS: the round trip is measured, within 5 % and the network's own 0.5 ms.
measured() {
    local told micros
    told=$("$tautline" latency pair "$1" "$2" -o json | sed -n '/"told"/,/}/p')
    echo "$told"
    micros=$(sed -n 's/.*"rttMicros": *\([0-9]*\).*/\1/p' <<<"$told")
    grep -q '"basis": "measured"' <<<"$told" && ((micros >= $3 && micros <= $3 * 105 / 100 + 500))
}

# apply_example FILE [NODE]: with an image that the nodes have, and on the node if one is given.
apply_example() {
    local place=()
    [[ -z ${2:-} ]] || place=(-e "s#^\( *\)containers:#\1nodeSelector: {kubernetes.io/hostname: $2}\n&#")
    sed -e 's#registry.k8s.io/pause:[^"]*#localhost/pause:1#' "${place[@]}" "$repo/examples/near-server/$1" |
        kubectl apply -f - >/dev/null
}

# running APP NODE: all pods of the Deployment run there.
running() {
    local pods
    pods=$(kubectl -n shop get pods -l "app=$1" -o wide --no-headers)
    echo "$pods"
    [[ -n $pods ]] && ! grep -v " Running .* $2 " <<<"$pods" >/dev/null
}

schedulers() {
    kubectl -n shop get pods -l "app=$1" -o 'jsonpath={range .items[*]}{.spec.schedulerName}{"\n"}{end}' | sort -u
}

# compliance STATE: every binding has it.
compliance() {
    local all
    all=$(kubectl -n shop get constraintpolicybindings \
        -o 'jsonpath={range .items[*]}{.status.compliance}{"\n"}{end}' | sort | uniq -c)
    echo "$all"
    [[ $all =~ ^\ *[0-9]+\ $1$ ]]
}

webhooks_answer() {
    kubectl -n shop apply --dry-run=server -f "$repo/examples/near-server/1-policy.yaml"
}

# node_is NODE Ready|NotReady
node_is() { kubectl get node "$1" --no-headers | tee /dev/stderr | grep -q " $2 "; }

# governed_pod_lands NAME NODE: a pod near the server gets another node than NODE.
governed_pod_lands() {
    local place
    kubectl -n shop get pod "$1" >/dev/null 2>&1 || client_pod "$1" '' | kubectl create -f - || return 1
    place=$(kubectl -n shop get pod "$1" -o 'jsonpath={.spec.schedulerName} {.spec.nodeName}')
    echo "pod $1 has scheduler and node: $place"
    case $place in
        tautline-scheduler\ "$2") fail "pod $1 is on the node that is down" ;;
        tautline-scheduler\ n?) kubectl -n shop delete pod "$1" --now ;;
        tautline-scheduler*) return 1 ;;
        *)
            # No server of the webhook answered: the pod never meets the extender.
            kubectl -n shop delete pod "$1" --now
            return 1
            ;;
    esac
}

# client_pod NAME AFFINITY
client_pod() {
    cat <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: shop, labels: {app: client}}
spec:
  terminationGracePeriodSeconds: 0
  affinity: ${2:-null}
  containers: [{name: main, image: "localhost/pause:1"}]
YAML
}

# After a power cut the API server has connections to servers that are gone: a request on one of
# them runs into its timeout, and the pod passes without the webhook.
webhooks_settled() {
    local scheduler
    for _ in 1 2 3; do
        scheduler=$(client_pod settled '' | kubectl create --dry-run=server -o 'jsonpath={.spec.schedulerName}' -f -)
        echo "$scheduler"
        [[ $scheduler == tautline-scheduler ]] || return 1
    done
}

# Creates pods that stay away from the server's node: twenty, and more until the file `churned`
# exists.
churn() {
    local i=0 term='{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: server}}}'
    local away="{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [$term]}}"
    while [[ ! -e $run/churned ]] || ((i < 20)); do
        i=$((i + 1))
        client_pod "churn-$i" "$away" | kubectl create -f - >/dev/null || return 1
        sleep 0.5
    done
}

churned_on() {
    local pods
    pods=$(kubectl -n shop get pods -l app=client -o wide --no-headers | grep churn-)
    echo "$pods"
    (($(wc -l <<<"$pods") >= 20)) && ! grep -v " $1 " <<<"$pods" >/dev/null
}

rolled_out() {
    local workload
    for workload in $(kubectl -n tautline-system get deployments,daemonsets -o name); do
        kubectl -n tautline-system rollout status "$workload" --timeout=1s
    done
    all_pods_ready
}

objects_left() {
    local kind
    for kind in $(kubectl api-resources --verbs=list -o name | grep -v '^events\|customresourcedefinitions'); do
        kubectl get "$kind" -A -l app.kubernetes.io/managed-by=Helm -o name 2>/dev/null
    done
}

# Of any kind, also what the processes made; definitions with their API groups, and events, aside.
named_after_tautline() {
    local kind
    for kind in $(kubectl api-resources --verbs=list -o name | grep -v '^events\|customresourcedefinitions\|apiservices'); do
        kubectl get "$kind" -A -o name 2>/dev/null | grep tautline || true
    done
}

# The console of this user, on a free port of this machine.
start_console() {
    "$tautline" ui --listen 127.0.0.1:0 >"$run/console" 2>&1 &
    console=$!
}

end_console() {
    [[ -z ${console:-} ]] || kill "$console" || true
    console=
}

# console_has PATH TEXT...: the page as JSON has each text, and no part that could not be read.
console_has() {
    local page text url
    url=$(grep -m 1 ^http "$run/console") || return 1
    page=$(kubectl --kubeconfig=/dev/null --server="$url" get --raw "$1?format=json")
    echo "$page"
    [[ $page != *'"error":'* ]] || return 1
    for text in "${@:2}"; do
        [[ $page == *"$text"* ]] || return 1
    done
}

# Of both extenders, all agents, the records of rounds, and the measured matrix.
console_knows() {
    console_has / '"replicas":2' '"agents":3' '"service":"tautline-system/tautline-latency"' '"addresses":2' &&
        console_has /decisions '"rounds":' && console_has /latency '"byBasis":{"measured":3}' &&
        console_has /bindings '"compliance":"Compliant"'
}

show_state() {
    kubectl get pods -A -o wide || true
    kubectl -n shop get events --sort-by=.lastTimestamp 2>/dev/null | tail -20 || true
    kubectl -n shop get constraintpolicybindings -o wide 2>/dev/null || true
} >&2
