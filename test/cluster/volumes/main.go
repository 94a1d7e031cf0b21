// Command volumes makes the persistent volumes of the one-node cluster: a folder of the node for each claim, which any
// user may write to, as on kind and minikube. So a database that does not run as root needs no container that runs as root
// to prepare its volume. It limits no volume's size.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provisionerName is what a StorageClass calls this program by.
const provisionerName = "watertight.example.com/folder"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("volumes", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the cluster")
	dir := flags.String("dir", "", "the `folder` that the volumes' folders lie in")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig == "" || !filepath.IsAbs(*dir) {
		return errors.New("-kubeconfig and an absolute -dir are needed")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	folders := folders{dir: *dir}
	// One process on one node: there is nobody to elect a leader from.
	controller.NewProvisionController(ctx, client, provisionerName, folders, controller.LeaderElection(false)).Run(ctx)
	return nil
}

// folders is the provisioner: one folder in dir for each volume, named after it.
type folders struct{ dir string }

// Provision makes the folder, and describes it as a local volume: unlike a hostPath it is bound to its node, and a pod's
// fsGroup holds for it.
func (f folders) Provision(_ context.Context, options controller.ProvisionOptions) (*core.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(f.dir, options.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("volume %s: %w", options.PVName, err)
	}
	// The umask took rights from MkdirAll.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("volume %s: %w", options.PVName, err)
	}
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: options.PVName},
		Spec: core.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: options.PVC.Spec.Resources.Requests[core.ResourceStorage]},
			PersistentVolumeSource:        core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: path}},
			NodeAffinity:                  onlyOn(options.SelectedNodeName),
		},
	}, controller.ProvisioningFinished, nil
}

func onlyOn(node string) *core.VolumeNodeAffinity {
	here := core.NodeSelectorRequirement{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node}}
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{
		NodeSelectorTerms: []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{here}}},
	}}
}

// Delete removes the folder with all that is in it.
func (f folders) Delete(_ context.Context, volume *core.PersistentVolume) error {
	// The name is the cluster's; the path in the object could have been edited.
	if err := os.RemoveAll(filepath.Join(f.dir, filepath.Base(volume.Name))); err != nil {
		return fmt.Errorf("volume %s: %w", volume.Name, err)
	}
	return nil
}
