#!/usr/bin/env bash
# after-install.sh CRASH_LOOP_MAX REMOVE: what to open and to try once the shop is installed on a laptop's cluster, whose kubelet lets a crashing container
# wait for CRASH_LOOP_MAX at most, and which the command REMOVE removes.
set -euo pipefail
crash_loop_max=$1 remove=$2

cat <<TEXT

The shop is up: http://localhost:8080/   (traces, if the release has Jaeger: http://localhost:16686/)

Watch a CrashLoopBackOff stay in recs. Each call kills it, for 15 minutes:
  curl -X PUT --json '{"kind":"crash","ttl_s":900}' http://localhost:8080/api/v1/faults/recs
  while sleep 0.2; do curl -s -o page.json http://localhost:8080/api/v1/products/LGT-0007; done &
  kubectl get pods -n watertight -l app.kubernetes.io/part-of=watertight --watch
It takes a minute or two to show: the first restart is at once, only the next ones wait (10 s, then twice as long each time, $crash_loop_max at most).
And the gateway's breaker, which opens after five failed calls, spares recs the calls that would crash it but for a probe every 5 s. That is also why the
fault lasts so long. Meanwhile pages come without recommendations, orders are taken, and no other pod restarts.

To end it, and not to wait out the last back-off (up to $crash_loop_max):
  curl -X DELETE http://localhost:8080/api/v1/faults/recs
  kubectl delete pod -n watertight -l app.kubernetes.io/name=recs

$remove removes everything.
TEXT
