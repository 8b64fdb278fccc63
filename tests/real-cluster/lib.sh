# shellcheck shell=bash disable=SC2034
# Names, addresses and functions of the scripts, which source it.
#
# Sites: the nodes n1 to n3; cp, the control plane; host, this machine. Node ni
# has the address 10.77.0.i, and its pods have 10.78.i.0/24.
set -euo pipefail

here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
repo=$(realpath "$here/../..")
out=$repo/target/real-cluster
bin=$out/bin       # programs built here
images=$out/images # container images, as docker-archives
debian=$out/debian # Debian packages, unpacked
run=$out/run       # state; `down` removes it
log=$out/log
export PATH=$bin:$debian/usr/bin:$debian/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin:$PATH

nodes=(n1 n2 n3)
device=tautline0
services=10.96.0.0/16
dns=10.96.0.10
control_plane=10.77.0.10
host=10.77.0.254

# Every process of the cluster is in the cgroup tautline-SITE of the cgroup2
# hierarchy. With cgroup v1 that one has no controllers, and the others do.
unified=$(findmnt -rno TARGET -t cgroup2 | head -n 1)

say() { echo "real-cluster: $*" >&2; }
fail() {
    say "$*"
    exit 1
}
export REAL_CLUSTER_START=${REAL_CLUSTER_START:-$EPOCHSECONDS}
phase() { say "$((EPOCHSECONDS - REAL_CLUSTER_START))s $*"; }

address() {
    case $1 in
        cp) echo "$control_plane" ;;
        host) echo "$host" ;;
        *) echo "10.77.0.${1#n}" ;;
    esac
}
pods() { echo "10.78.${1#n}.0/24"; }

is_node() { [[ " ${nodes[*]} " == *" $1 "* ]]; }

# wait_for SECONDS WHAT COMMAND...: until COMMAND succeeds; shows its last output if it does not.
wait_for() {
    local limit=$1 what=$2 last deadline=$((SECONDS + $1))
    shift 2
    until last=$("$@" 2>&1); do
        if ((SECONDS >= deadline)); then
            [[ -z $last ]] || echo "$last" >&2
            fail "$what: not within ${limit}s; logs are in $log"
        fi
        sleep 0.1
    done
}

# locked ARGS...: runs the calling script again, after the others that change the cluster.
locked() {
    [[ -z ${REAL_CLUSTER_LOCKED:-} ]] || return 0
    mkdir -p "$out"
    REAL_CLUSTER_LOCKED=1 exec flock --close "$out/.lock" "$here/${0##*/}" "$@"
}

hierarchies() { findmnt -rno TARGET -t cgroup,cgroup2; }

# enter SITE: the calling subshell, and what it starts, joins the site's cgroups.
enter() {
    local hierarchy group controller
    for hierarchy in $(hierarchies); do
        group=$hierarchy/tautline-$1
        # The kubelet puts pods next to system.
        mkdir -p "$group/system"
        if [[ -e $hierarchy/cgroup.controllers ]]; then
            for controller in $(<"$hierarchy/cgroup.controllers"); do
                echo "+$controller" >"$hierarchy/cgroup.subtree_control"
            done
        elif [[ -e $group/cpuset.cpus ]]; then
            fill_cpuset "$group"
            fill_cpuset "$group/system"
        fi
        echo "$BASHPID" >"$group/system/cgroup.procs"
    done
}

# A new cpuset of cgroup v1 is empty, and accepts no process.
fill_cpuset() {
    cat "$1/../cpuset.cpus" >"$1/cpuset.cpus"
    cat "$1/../cpuset.mems" >"$1/cpuset.mems"
}

# kill_site SITE: ends all of its processes at once.
kill_site() {
    local group=$unified/tautline-$1
    [[ -e $group ]] || return 0
    echo 1 >"$group/cgroup.kill"
    wait_for 10 "the end of the processes of $1" grep -q '^populated 0' "$group/cgroup.events"
    wait_for 10 "the removal of the cgroups of $1" remove_groups "$1"
}

remove_groups() {
    local hierarchy left=0
    for hierarchy in $(hierarchies); do
        [[ ! -e $hierarchy/tautline-$1 ]] || find "$hierarchy/tautline-$1" -depth -type d -exec rmdir {} + || left=1
    done
    return "$left"
}

# start SITE NAME COMMAND...: in the site's cgroup and network; the pid is in run/NAME.pid. The
# control plane's programs start again when they end.
start() {
    local site=$1 name=$2
    shift 2
    (
        mkdir -p "$unified/tautline-$site"
        echo "$BASHPID" >"$unified/tautline-$site/cgroup.procs"
        echo "$BASHPID" >"$run/$name.pid"
        [[ $site == host ]] || set -- nsenter --net="/run/netns/tautline-$site" "$here/keep" "$@"
        exec setsid "$@"
    ) >"$log/$name.log" 2>&1 </dev/null &
}

# start_scheduler [CONFIG]
start_scheduler() {
    local arguments=(--kubeconfig="$run/pki/scheduler.kubeconfig" --leader-elect=false)
    [[ -z ${1:-} ]] || arguments=(--config="$1")
    start cp kube-scheduler "$bin/kube-scheduler" "${arguments[@]}" --bind-address=127.0.0.1
    # The certificate is for kubectl, which asks for a password otherwise.
    wait_for 60 "kube-scheduler ready" nsenter --net=/run/netns/tautline-cp kubectl --kubeconfig=/dev/null \
        --server=https://127.0.0.1:10259 --insecure-skip-tls-verify \
        --client-certificate="$run/pki/scheduler.crt" --client-key="$run/pki/scheduler.key" get --raw /readyz
}

# plug_in SITE: addresses and routes.
plug_in() {
    local site=$1 node ip=(ip)
    [[ $site == host ]] || ip=(ip -n "tautline-$site")
    "${ip[@]}" address replace "$(address "$site")/24" dev "$device"
    "${ip[@]}" link set "$device" up
    for node in "${nodes[@]}"; do
        [[ $node == "$site" ]] || "${ip[@]}" route replace "$(pods "$node")" dev "$device" src "$(address "$site")"
    done
    # A host's own connections need some route before kube-proxy redirects them.
    [[ $site == host ]] || "${ip[@]}" route replace "$services" dev "$device" src "$(address "$site")"
}

# stop NAME: ends a process that `start` started.
stop() {
    local pid
    pid=$(<"$run/$1.pid")
    kill "$pid"
    wait_for 10 "the end of $1" ended "$pid"
}
# A zombie has ended.
ended() { [[ ! -e /proc/$1/exe ]]; }

# cut_power NODE: the network first, so that peers get no FIN.
cut_power() {
    local node=$1 link
    local netns=tautline-$node
    [[ ! -e /run/netns/$netns ]] || ip -n "$netns" link set "$device" down 2>/dev/null || true
    kill_site "$node"
    rm -f "$run/$node/init.pid"
    [[ -e /run/netns/$netns ]] || return 0
    # A machine loses these as well.
    for link in $(ip -n "$netns" -o link show type veth | sed -n 's/^[0-9]*: \([^@:]*\).*/\1/p'); do
        ip -n "$netns" link delete "$link"
    done
    nsenter --net="/run/netns/$netns" nft flush ruleset
    nsenter --net="/run/netns/$netns" ipset destroy || true
    nsenter --net="/run/netns/$netns" conntrack -F 2>/dev/null || true
}

# kube_proxy_config NODE
kube_proxy_config() {
    cat <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: $1
clientConnection: {kubeconfig: $run/pki/proxy.kubeconfig}
clusterCIDR: 10.78.0.0/16
detectLocalMode: ClusterCIDR
nodePortAddresses: [primary]
oomScoreAdj: 0
# These are settings of the whole machine.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 100ms}
YAML
}
