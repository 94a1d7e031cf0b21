package sim

import (
	"slices"

	"example.com/watertight/lab/scenario"
)

// newPlan works out what a scenario means for a design.
func newPlan(in scenario.Inputs, s *scenario.Scenario, d *scenario.Design) plan {
	p := plan{
		network: !d.OneProcess, gateway: int64(in.GatewayTime),
		callsRecs: d.CallsRecs, callTimeout: int64(in.SyncTimeout), fallback: in.SyncFallback,
		retries: s.Retries, fault: s.Fault, luck: threshold(s.Fault.Share),
		warm: int64(s.WarmUp), length: int64(s.Length),
		away: int64(s.Fault.RestartOne), process: 1,
	}
	if d.OneBuild {
		p.away = int64(s.Fault.RestartWhole)
	}
	if d.OnePool {
		p.pools = []poolPlan{{name: "shared", workers: s.Workers, queue: s.Queue}}
	}
	for i, r := range s.Routes {
		p.patience = append(p.patience, int64(r.Patience))
		p.bitten = append(p.bitten, s.Fault.Kind != scenario.None && s.Fault.Kind != scenario.Redeploy && slices.Contains(s.Fault.Features, r.Feature))
		if r.Feature == scenario.Recs {
			p.recs = uint8(i)
		}
		if d.OnePool {
			p.poolOf = append(p.poolOf, 0)
			continue
		}
		own := poolPlan{name: string(r.Feature), workers: r.Workers, queue: r.Queue}
		if !d.OneProcess {
			own.process = uint8(i)
		}
		p.poolOf = append(p.poolOf, uint8(i))
		p.pools = append(p.pools, own)
	}
	if !d.OneProcess {
		p.process = len(p.pools)
		p.victim = p.recs
	}
	return p
}
