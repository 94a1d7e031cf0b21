package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/watertight/test/manifests/chart"
)

// endpoint is a pod that policies are asked about.
type endpoint struct {
	name      string
	namespace string
	labels    map[string]string
	ports     map[string]int // by name
}

// endpoints are the release's pods, and those outside that matter to it.
func endpoints(t *testing.T, r release) []endpoint {
	t.Helper()
	out := []endpoint{
		{"dns", "kube-system", map[string]string{"k8s-app": "kube-dns"}, map[string]int{"dns": 53}},
		{"stranger", "elsewhere", map[string]string{}, map[string]int{"any": 443}},
		{"monitoring", "monitoring", map[string]string{}, map[string]int{}},
		{"neighbour", chart.Release, map[string]string{"app": "not-the-shop"}, map[string]int{"any": 443}},
	}
	for _, service := range []string{"checkout", "search", "recs", "inventory", "payment"} {
		out = append(out, endpoint{service + "-database", "watertight-data", map[string]string{"cnpg.io/cluster": service + "-database"}, map[string]int{"sql": 5432}})
	}
	out = append(out, endpoint{"external-nats", "watertight-data", map[string]string{"app.kubernetes.io/name": "nats"}, map[string]int{"nats": 4222}})
	for _, p := range pods(t, r) {
		e := endpoint{p.Labels["app.kubernetes.io/name"], chart.Release, p.Labels, map[string]int{}}
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				e.ports[port.Name] = int(port.ContainerPort)
			}
		}
		out = append(out, e)
	}
	return out
}

// flows works out what the policies let through, as "from -> to:port", for TCP and UDP together.
func flows(t *testing.T, r release) []string {
	t.Helper()
	policies := slices.Collect(maps.Values(typed[networkingv1.NetworkPolicy](t, r, "NetworkPolicy")))
	all := endpoints(t, r)
	var out []string
	for _, from := range all {
		for _, to := range all {
			if from.name == to.name || from.namespace != chart.Release && to.namespace != chart.Release {
				continue
			}
			for port, number := range to.ports {
				for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
					if allowed(t, policies, networkingv1.PolicyTypeEgress, from, to, port, number, protocol) &&
						allowed(t, policies, networkingv1.PolicyTypeIngress, to, from, port, number, protocol) {
						out = append(out, fmt.Sprintf("%s -> %s:%d/%s", from.name, to.name, number, strings.ToLower(string(protocol))))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// allowed asks the policies of one direction that select the pod subject: whether it may speak with other at a port of the
// destination's. A pod that none selects may do everything.
func allowed(t *testing.T, policies []*networkingv1.NetworkPolicy, direction networkingv1.PolicyType, subject, other endpoint, port string, number int, protocol corev1.Protocol) bool {
	t.Helper()
	selected := false
	for _, policy := range policies {
		if policy.Namespace != subject.namespace || !slices.Contains(policy.Spec.PolicyTypes, direction) || !matches(t, &policy.Spec.PodSelector, subject.labels) {
			continue
		}
		selected = true
		if direction == networkingv1.PolicyTypeEgress {
			for _, rule := range policy.Spec.Egress {
				if peersMatch(t, rule.To, policy.Namespace, other) && portsMatch(rule.Ports, port, number, protocol) {
					return true
				}
			}
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if peersMatch(t, rule.From, policy.Namespace, other) && portsMatch(rule.Ports, port, number, protocol) {
				return true
			}
		}
	}
	return !selected
}

func matches(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(set))
}

func peersMatch(t *testing.T, peers []networkingv1.NetworkPolicyPeer, namespace string, other endpoint) bool {
	t.Helper()
	if len(peers) == 0 {
		return true
	}
	for _, peer := range peers {
		inNamespace := other.namespace == namespace
		if peer.NamespaceSelector != nil {
			inNamespace = matches(t, peer.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": other.namespace})
		}
		if inNamespace && peer.IPBlock == nil && (peer.PodSelector == nil || matches(t, peer.PodSelector, other.labels)) {
			return true
		}
	}
	return false
}

func portsMatch(ports []networkingv1.NetworkPolicyPort, name string, number int, protocol corev1.Protocol) bool {
	if len(ports) == 0 {
		return true
	}
	for _, p := range ports {
		named := p.Port != nil && p.Port.Type == intstr.String && p.Port.StrVal == name
		numbered := p.Port != nil && p.Port.Type == intstr.Int && p.Port.IntValue() == number
		if *p.Protocol == protocol && (p.Port == nil || named || numbered) {
			return true
		}
	}
	return false
}

// splitFlows are all the flows that the split has.
func splitFlows() []string {
	flows := []string{
		"gateway -> checkout:50051/tcp", "gateway -> search:50051/tcp", "gateway -> recs:50051/tcp",
		"gateway -> nats:4222/tcp",
		"stranger -> gateway:8080/tcp", "monitoring -> gateway:8080/tcp", "dns -> gateway:8080/tcp", "external-nats -> gateway:8080/tcp",
	}
	for _, service := range []string{"checkout", "search", "recs", "inventory", "payment"} {
		flows = append(flows, service+"-database -> gateway:8080/tcp") // from outside, everybody may reach the gateway
		flows = append(flows, service+" -> postgres:5432/tcp", service+" -> nats:4222/tcp")
	}
	for _, lab := range []string{"import", "smoke"} {
		for _, to := range []string{"checkout:50051", "search:50051", "recs:50051", "inventory:50051", "gateway:8080", "nats:4222", "postgres:5432"} {
			flows = append(flows, lab+" -> "+to+"/tcp")
		}
	}
	return flows
}

func withDNS(r []string, names ...string) []string {
	for _, name := range names {
		r = append(r, name+" -> dns:53/tcp", name+" -> dns:53/udp")
	}
	return r
}

func compare(t *testing.T, name string, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("%s: flows (-want +got):\n%s", name, diff)
	}
}

func TestReport42_JustTheFlowsThatExist(t *testing.T) {
	everybody := []string{"gateway", "checkout", "search", "recs", "inventory", "payment", "nats", "postgres", "import", "smoke"}
	split := withDNS(splitFlows(), everybody...)
	compare(t, "split", flows(t, render(t, nil)), split)

	guarded := chart.Values{"services": chart.Values{"checkout": chart.Values{"env": chart.Values{"RECS_IN_CHECKOUT": "guarded"}}}}
	compare(t, "recs in checkout", flows(t, render(t, guarded)), append(slices.Clone(split), "checkout -> recs:50051/tcp"))

	observed := chart.Values{"observability": chart.Values{"serviceMonitor": chart.Values{"enabled": true}}}
	scraped := slices.Clone(split)
	for service, port := range map[string]int{"gateway": 9080, "checkout": 9090, "search": 9090, "recs": 9090, "inventory": 9090, "payment": 9090} {
		scraped = append(scraped, fmt.Sprintf("monitoring -> %s:%d/tcp", service, port))
	}
	compare(t, "scraped", flows(t, render(t, observed)), scraped)

	one := []string{"monolith -> postgres:5432/tcp", "monolith -> nats:4222/tcp"}
	for _, from := range []string{"stranger", "monitoring", "dns", "external-nats", "checkout-database", "search-database", "recs-database", "inventory-database",
		"payment-database", "import", "smoke"} {
		one = append(one, from+" -> monolith:8080/tcp")
	}
	for _, lab := range []string{"import", "smoke"} {
		one = append(one, lab+" -> monolith:50051/tcp", lab+" -> nats:4222/tcp", lab+" -> postgres:5432/tcp")
	}
	compare(t, "monolith", flows(t, render(t, chart.Values{"design": "shared-pool"})), withDNS(one, "monolith", "nats", "postgres", "import", "smoke"))
}

// With databases of their own, each service reaches its own and no other's; on one server it is the server that sees to it
// (TestPostgres_EachRoleReachesItsOwnDatabase).
func TestReport42_InProductionEachServiceReachesItsOwnDatabaseOnly(t *testing.T) {
	got := flows(t, render(t, variants(t)["prod"]))
	databases := 0
	for _, flow := range got {
		from, to, _ := strings.Cut(flow, " -> ")
		owner, isDatabase := strings.CutSuffix(strings.TrimSuffix(to, ":5432/tcp"), "-database")
		if !isDatabase {
			continue
		}
		if lab := from == "import" || from == "smoke"; from != owner && !lab {
			t.Errorf("%s: not an edge of the shop", flow)
		}
		if from == owner {
			databases++
		}
	}
	if databases != 5 {
		t.Errorf("%d of 5 services reach their database: %v", databases, got)
	}
	for _, want := range []string{"checkout -> external-nats:4222/tcp", "gateway -> external-nats:4222/tcp", "recs -> dns:53/udp", "recs -> dns:53/tcp"} {
		if !slices.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	for _, refused := range []string{"stranger -> gateway:8080/tcp", "recs -> checkout-database:5432/tcp", "recs -> stranger:443/tcp", "search -> recs:50051/tcp"} {
		if slices.Contains(got, refused) {
			t.Errorf("allowed: %s", refused)
		}
	}
}

func TestNetworkPolicies_CanBeLeftOut(t *testing.T) {
	r := render(t, chart.Values{"networkPolicy": chart.Values{"enabled": false}})
	if policies := typed[networkingv1.NetworkPolicy](t, r, "NetworkPolicy"); len(policies) > 0 {
		t.Errorf("%d policies are left", len(policies))
	}
	if !slices.Contains(flows(t, r), "recs -> stranger:443/tcp") {
		t.Error("without policies recs should reach everything: the test sees nothing")
	}
}
