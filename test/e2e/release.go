package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"

	"example.com/watertight/lab/cluster"
)

// values are Helm's, nested.
type values = map[string]any

// installation is the chart, installed in a namespace by Helm.
type installation struct {
	namespace string
	chart     *chart.Chart
	values    values
	helm      *action.Configuration
}

const (
	releaseName = "watertight"
	installTime = 6 * time.Minute
	chartDir    = "../../helm/watertight"
	imagesFile  = "../../build/images/values.yaml"
)

// newInstallation prepares an installation. It touches nothing yet.
func newInstallation(place cluster.Place, own values) (*installation, error) {
	loaded, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	images, err := readValues(imagesFile)
	if err != nil {
		return nil, err
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.Namespace = &place.Namespace
	if place.Kubeconfig != "" {
		flags.KubeConfig = &place.Kubeconfig
	}
	helm := action.NewConfiguration()
	helm.SetLogger(slog.DiscardHandler)
	if err := helm.Init(flags, place.Namespace, "secret"); err != nil {
		return nil, fmt.Errorf("helm: %w", err)
	}
	return &installation{namespace: place.Namespace, chart: loaded, values: merge(images, own), helm: helm}, nil
}

// readValues reads a values file; `make images` writes the one with the images' tags.
func readValues(file string) (values, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return values{}, nil // the images come from a registry
	}
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	read := values{}
	if err := yaml.UnmarshalStrict(content, &read); err != nil {
		return nil, fmt.Errorf("values %s: %w", file, err)
	}
	return read, nil
}

// merge lays the second over the first, and changes neither.
func merge(under, over values) values { return util.CoalesceTables(deepCopy(over), deepCopy(under)) }

func deepCopy(v values) values {
	out := maps.Clone(v)
	for key, value := range out {
		if inner, ok := value.(values); ok {
			out[key] = deepCopy(inner)
		}
	}
	return out
}

// install installs the chart and waits until everything is there.
func (i *installation) install(ctx context.Context) error {
	install := action.NewInstall(i.helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace = releaseName, i.namespace, true
	install.Timeout, install.WaitStrategy, install.WaitForJobs = installTime, kube.StatusWatcherStrategy, true
	if _, err := install.RunWithContext(ctx, i.chart, deepCopy(i.values)); err != nil {
		return fmt.Errorf("helm install: %w", err)
	}
	return nil
}

// upgrade goes over to other values, laid over those of the installation, and waits for the rollout if told to.
func (i *installation) upgrade(ctx context.Context, over values, wait kube.WaitStrategy) error {
	upgrade := action.NewUpgrade(i.helm)
	upgrade.Namespace, upgrade.Timeout, upgrade.ResetValues = i.namespace, installTime, true
	// Whoever scaled or edited an object is told by Helm that it is Helm's.
	upgrade.ServerSideApply, upgrade.ForceConflicts, upgrade.WaitStrategy = "auto", true, wait
	if _, err := upgrade.RunWithContext(ctx, releaseName, i.chart, merge(i.values, over)); err != nil {
		return fmt.Errorf("helm upgrade: %w", err)
	}
	return nil
}

// rollback goes back to the revision before the last.
func (i *installation) rollback(wait kube.WaitStrategy) error {
	rollback := action.NewRollback(i.helm)
	rollback.Timeout, rollback.ServerSideApply, rollback.ForceConflicts, rollback.WaitStrategy = installTime, "auto", true, wait
	if err := rollback.Run(releaseName); err != nil {
		return fmt.Errorf("helm rollback: %w", err)
	}
	return nil
}

// uninstall removes the release; what is not there need not be removed.
func (i *installation) uninstall() error {
	uninstall := action.NewUninstall(i.helm)
	uninstall.Timeout, uninstall.WaitStrategy, uninstall.IgnoreNotFound = installTime, kube.HookOnlyStrategy, true
	if _, err := uninstall.Run(releaseName); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return fmt.Errorf("helm uninstall: %w", err)
	}
	return nil
}

// render is what an upgrade to these values would send, without sending it.
func (i *installation) render(ctx context.Context, over values) (string, error) {
	install := action.NewInstall(i.helm)
	install.ReleaseName, install.Namespace, install.DryRunStrategy, install.Replace = releaseName, i.namespace, action.DryRunServer, true
	rendered, err := install.RunWithContext(ctx, i.chart, merge(i.values, over))
	if err != nil {
		return "", fmt.Errorf("helm template: %w", err)
	}
	r, ok := rendered.(*release.Release)
	if !ok {
		return "", fmt.Errorf("helm template: it gave a %T", rendered)
	}
	return r.Manifest, nil
}

// Break is cluster.Releaser: a release of the process that ends as it starts.
func (i *installation) Break(ctx context.Context, process string) error {
	broken := values{"services": values{process: values{"env": values{cluster.BrokenVariable: cluster.BrokenValue}}}}
	return i.upgrade(ctx, broken, kube.HookOnlyStrategy)
}

// Undo is cluster.Releaser.
func (i *installation) Undo(context.Context, string) error { return i.rollback(kube.HookOnlyStrategy) }
