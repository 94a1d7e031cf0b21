// Command kube is a whole Kubernetes node in one static program: its first argument, or else the name that it is called
// by, says which component it is. One program shares what the eight have in common: an eighth of the disk, and of the
// time to link.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // for the time zones of CronJobs, on a host that has none

	"github.com/coredns/coredns/coremain"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // the components' --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics of their clients
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components run the rest of os.Args as their own command line and return the exit code.
func components() map[string]func() int {
	command := func(make func() *cobra.Command) func() int {
		return func() int { return cli.Run(make()) }
	}
	return map[string]func() int{
		"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
		"coredns":                 func() int { coremain.Run(); return 0 },
		"kube-apiserver":          command(apiserver.NewAPIServerCommand),
		"kube-controller-manager": command(controllers.NewControllerManagerCommand),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kube-proxy":              command(proxy.NewProxyCommand),
		"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
		"kubectl": func() int {
			// It has to be told before its flags are parsed, as kubectl's own main does.
			if err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
				fmt.Fprintln(os.Stderr, "kubectl: log verbosity:", err)
			}
			if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
				kubectlutil.CheckErr(err) // exits
			}
			return 0
		},
	}
}

func main() {
	all := components()
	if run, ok := all[filepath.Base(os.Args[0])]; ok {
		os.Exit(run())
	}
	if len(os.Args) > 1 {
		if run, ok := all[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	fmt.Fprintf(os.Stderr, "usage: kube COMPONENT [flags]; the components are %s\n", strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	os.Exit(2)
}
