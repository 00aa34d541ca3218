#!/usr/bin/env bash
# Several Ray nodes on one machine, with a token: start, stop, status.
#
#   cluster/local.sh start [--nodes 2] [--cpus 1] [--dir FOLDER] [--port P] [--dashboard-port P]
#                          [--memory BYTES]
#   cluster/local.sh status [--dir FOLDER]
#   cluster/local.sh env    [--dir FOLDER]      # eval "$(cluster/local.sh env)"
#   cluster/local.sh stop   [--dir FOLDER]
#
# All it starts is noted in FOLDER (default: ${XDG_STATE_HOME:-~/.local/state}/distfms-cluster), and
# stop ends exactly that, never another Ray cluster on the machine (as plain `ray stop` would).
# RAY names the ray program; by default the one on the PATH, else the project's .venv.
set -euo pipefail


usage() {
    sed -n '2,11s/^# \{0,1\}//p' "$0"
}

fail() {
    echo "Error: $*" >&2
    exit 1
}

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

require_free() {
    "$python" -c 'import socket, sys; socket.create_server(("127.0.0.1", int(sys.argv[1])))' "$1" \
        2>/dev/null || fail "port $1 cannot be used: something listens there, or it is no port" \
        "for you. Give another one, or leave it out: then a free one is taken."
}

# --- processes ----------------------------------------------------------------------------------
# A node is one `ray start --block` in a session of its own: its children are in the session too,
# so what a killed parent leaves behind can be found. Each line of FOLDER/nodes: name, process id,
# start time of the process (a recycled id has another one).

started_at() {
    # State and start time of /proc/…/stat, counted from the end of the command's name, which may
    # hold spaces. A zombie has ended, whether or not its parent has noticed.
    sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" {print $20}'
}

is_ours() {
    local now
    now=$(started_at "$1") || return 1
    [ -n "$now" ] && [ "$now" = "$2" ]
}

session_members() {
    ps -o pid= -s "$1" 2>/dev/null | tr -d ' '
}

start_node() {
    local name=$1
    shift
    # Ports: 0 lets the system choose, so that nodes do not collide with one another.
    setsid "$ray" start "$@" --block --num-cpus="$cpus" --object-store-memory="$memory" \
        --node-ip-address=127.0.0.1 --min-worker-port=0 --max-worker-port=0 \
        --dashboard-agent-listen-port="$(free_port)" --disable-usage-stats --log-color=false \
        >"$folder/$name.log" 2>&1 </dev/null &
    local pid=$!
    echo "$name $pid $(started_at "$pid")" >>"$folder/nodes"
}

stop_nodes() {
    local name pid start
    [ -f "$folder/nodes" ] || return 0
    # Workers first, the head last, so that none of them complains about a lost head.
    tac "$folder/nodes" | while read -r name pid start; do
        if is_ours "$pid" "$start"; then
            kill -TERM "$pid" 2>/dev/null || true
            for _ in $(seq 100); do
                is_ours "$pid" "$start" || break
                sleep 0.1
            done
        fi
        # Whatever is left of that node's session. Its id is not given away while a member lives;
        # where another process has it by now, none does.
        local now
        now=$(started_at "$pid" || true)
        if [ -z "$now" ] || [ "$now" = "$start" ]; then
            for child in $(session_members "$pid"); do
                kill -KILL "$child" 2>/dev/null || true
            done
        fi
        echo "Stopped $name"
    done
    rm -f "$folder/nodes" "$folder/address" "$folder/dashboard"
    if [ -f "$folder/temp" ]; then
        rm -rf "$(cat "$folder/temp")"
        rm -f "$folder/temp"
    fi
}

n_running() {
    local count=0 name pid start
    [ -f "$folder/nodes" ] || { echo 0; return; }
    while read -r name pid start; do
        if is_ours "$pid" "$start"; then count=$((count + 1)); fi
    done <"$folder/nodes"
    echo "$count"
}

# --- commands -----------------------------------------------------------------------------------

find_ray() {
    ray=${RAY:-$(command -v ray || true)}
    [ -n "$ray" ] || ray=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin/ray
    [ -x "$ray" ] || fail "there is no ray program; install distfms, or name it: RAY=/path/to/ray $0 …"
    python=$(dirname "$ray")/python
    [ -x "$python" ] || python=python3
}

make_token() {
    if [ ! -s "$folder/token" ]; then
        (umask 077 && "$python" -c 'import secrets; print(secrets.token_hex(32), end="")' \
            >"$folder/token")
    fi
}

wait_until_ready() {
    "$python" - "$address" "$dashboard" "$nodes" "$folder" <<'PYTHON' || return 1
import json, pathlib, sys, time, urllib.request

address, dashboard, nodes, folder = sys.argv[1:]
token = pathlib.Path(folder, "token").read_text()
request = urllib.request.Request(
    f"{dashboard}/nodes?view=summary", headers={"Authorization": f"Bearer {token}"}
)
proxyless = urllib.request.build_opener(urllib.request.ProxyHandler({}))
started = [line.split()[1] for line in pathlib.Path(folder, "nodes").read_text().splitlines()]


def has_ended(process):
    try:
        stat = pathlib.Path("/proc", process, "stat").read_text()
    except OSError:
        return True
    return stat.rpartition(") ")[2].startswith("Z")


deadline = time.monotonic() + 90
while time.monotonic() < deadline and not any(map(has_ended, started)):
    try:
        with proxyless.open(request, timeout=5) as answer:
            found = json.load(answer)["data"]["summary"]
        alive = [node for node in found if node["raylet"].get("state") == "ALIVE"]
        if len(alive) >= int(nodes):
            sys.exit(0)
    except (OSError, ValueError, KeyError):
        pass
    time.sleep(0.5)
sys.exit(1)
PYTHON
}

start() {
    [ "$(n_running)" = 0 ] || fail "a cluster of $folder is running. Stop it first: $0 stop --dir $folder"
    stop_nodes >/dev/null
    [ -z "$port" ] || require_free "$port"
    [ -z "$dashboard_port" ] || require_free "$dashboard_port"
    make_token
    port=${port:-$(free_port)}
    dashboard_port=${dashboard_port:-$(free_port)}
    # A short path: names of Unix sockets below it may have 107 bytes.
    local temp
    temp=$(mktemp -d /tmp/distfms-ray-XXXXXX)
    echo "$temp" >"$folder/temp"
    address="127.0.0.1:$port"
    dashboard="http://127.0.0.1:$dashboard_port"
    echo "$address" >"$folder/address"
    echo "$dashboard" >"$folder/dashboard"
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$folder/token"
    # Jobs call `python`, which has to be the one that ray belongs to.
    PATH=$(cd "$(dirname "$ray")" && pwd):$PATH
    export PATH
    unset RAY_AUTH_TOKEN RAY_ADDRESS RAY_API_SERVER_ADDRESS
    start_node head --head --port="$port" --dashboard-host=127.0.0.1 \
        --dashboard-port="$dashboard_port" --ray-client-server-port="$(free_port)" \
        --temp-dir="$temp"
    for number in $(seq 2 "$nodes"); do
        start_node "node-$number" --address="$address"
    done
    if ! wait_until_ready; then
        tail -n 20 "$folder"/*.log >&2
        stop_nodes >&2
        fail "the cluster did not come up; the last lines of its logs stand above."
    fi
    echo "$nodes nodes with $cpus CPU each: $address, dashboard $dashboard"
    echo "Next: eval \"\$($0 env --dir $folder)\" && distfms submit SPEC"
}

print_env() {
    [ -f "$folder/address" ] || fail "no cluster of $folder is running."
    # Where the token is, not the token: what is exported shows up in many places.
    echo "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$folder/token"
    # `distfms submit` and `ray job` take it for --address.
    echo "export RAY_API_SERVER_ADDRESS=$(cat "$folder/dashboard")"
}

status() {
    local running total
    running=$(n_running)
    total=$([ -f "$folder/nodes" ] && wc -l <"$folder/nodes" || echo 0)
    if [ "$total" = 0 ]; then
        echo "No cluster of $folder."
        return 3
    fi
    echo "$running of $total nodes running: $(cat "$folder/address"), dashboard $(cat "$folder/dashboard")"
    [ "$running" = "$total" ] || return 4
}

command=${1:-}
[ $# -gt 0 ] && shift
nodes=2 cpus=1 port='' dashboard_port='' memory=200000000
folder=${XDG_STATE_HOME:-$HOME/.local/state}/distfms-cluster
while [ $# -gt 0 ]; do
    case $1 in -h | --help) usage; exit 0 ;; esac
    [ $# -gt 1 ] || fail "$1 needs a value."
    case $1 in
        --nodes) nodes=$2 ;;
        --cpus) cpus=$2 ;;
        --port) port=$2 ;;
        --dashboard-port) dashboard_port=$2 ;;
        --dir) folder=$2 ;;
        --memory) memory=$2 ;;
        *) usage >&2; fail "unknown option $1." ;;
    esac
    shift 2
done
[[ $nodes =~ ^[1-9][0-9]*$ ]] || fail "--nodes is a whole number from 1 on; found $nodes."

case $command in
    start | stop | status | env) ;;
    help | -h | --help) usage; exit 0 ;;
    *) usage; exit 2 ;;
esac
if [ "$command" = start ]; then
    find_ray
    mkdir -p "$folder"
fi
[ ! -d "$folder" ] || folder=$(cd "$folder" && pwd)
case $command in
    start) start ;;
    stop) stop_nodes ;;
    status) status ;;
    env) print_env ;;
esac
