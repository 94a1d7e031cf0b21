package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/watertight/lab/check"
)

func labResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("48Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}
}

// maxAcknowledged is what a ConfigMap may hold, in bytes: some 25,000 orders.
const maxAcknowledged = 1 << 20

// booksWait is how long what is still on its way may take to arrive.
const booksWait = time.Minute

// Where the pod finds the list of acknowledged orders.
const (
	ordersVolume = "orders"
	ordersFolder = "/orders"
	ordersFile   = "acked"
)

// books has `lab check` hold the databases against the acknowledged orders, in a pod that may reach them. Their URLs are
// those that the services have, wherever these come from.
func (s *Shop) books(ctx context.Context, image string, acknowledged []byte) (report check.Report, err error) {
	if len(acknowledged) > maxAcknowledged {
		return report, fmt.Errorf("%d bytes of acknowledged orders do not fit into a ConfigMap: make the run shorter or its rate lower", len(acknowledged))
	}
	pod := s.labPod("books-", image, []string{"check", "--output=json", "--wait=" + booksWait.String()})
	c := &pod.Spec.Containers[0]
	if c.Env, err = s.databases(ctx); err != nil {
		return report, err
	}
	if len(acknowledged) > 0 {
		list, err := s.client.CoreV1().ConfigMaps(s.Namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: pod.GenerateName, Namespace: s.Namespace, Labels: pod.Labels},
			Data:       map[string]string{ordersFile: string(acknowledged)},
		}, metav1.CreateOptions{})
		if err != nil {
			return report, fmt.Errorf("list of acknowledged orders: %w", err)
		}
		defer func() { err = errors.Join(err, s.removeConfigMap(ctx, list.Name)) }()
		c.Args = append(c.Args, "--acked="+ordersFolder+"/"+ordersFile)
		c.VolumeMounts = []corev1.VolumeMount{{Name: ordersVolume, MountPath: ordersFolder, ReadOnly: true}}
		pod.Spec.Volumes = []corev1.Volume{{Name: ordersVolume, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: list.Name}},
		}}}
	}
	made, err := s.client.CoreV1().Pods(s.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return report, fmt.Errorf("check the books: %w", err)
	}
	defer func() { err = errors.Join(err, s.removePod(ctx, made.Name)) }()
	err = await(ctx, startUp+booksWait, "the books are checked", func(ctx context.Context) (bool, error) {
		state, err := s.state(ctx, made.Name)
		return state.Terminated != nil, err
	})
	if err != nil {
		return report, err
	}
	log, err := s.log(ctx, made.Name)
	if err != nil {
		return report, err
	}
	if err := json.NewDecoder(strings.NewReader(string(log))).Decode(&report); err != nil {
		const most = 500
		return report, fmt.Errorf("the books could not be read: %q", log[:min(len(log), most)])
	}
	return report, nil
}

func (s *Shop) removeConfigMap(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := s.client.CoreV1().ConfigMaps(s.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove the list of acknowledged orders: %w", err)
	}
	return nil
}

// databases are the variables of lab check, each from where the service that owns the database has its own.
func (s *Shop) databases(ctx context.Context) ([]corev1.EnvVar, error) {
	deployments, err := s.deployments(ctx)
	if err != nil {
		return nil, err
	}
	var env []corev1.EnvVar
	for _, service := range []string{"checkout", "inventory", "payment"} {
		name := strings.ToUpper(service) + "_DATABASE_URL"
		source := databaseOf(deployments, service, name)
		if source == nil {
			return nil, fmt.Errorf("no process in the namespace %s has the database of %s", s.Namespace, service)
		}
		env = append(env, corev1.EnvVar{Name: name, ValueFrom: source})
	}
	return env, nil
}

// databaseOf finds the variable of the service's own process, or of one that has several services in it.
func databaseOf(deployments []appsv1.Deployment, service, prefixed string) *corev1.EnvVarSource {
	for i := range deployments {
		for _, c := range deployments[i].Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				if e.Name == prefixed || (e.Name == "DATABASE_URL" && deployments[i].Name == service) {
					return e.ValueFrom
				}
			}
		}
	}
	return nil
}

// deployments are the shop's processes, by name.
func (s *Shop) deployments(ctx context.Context) ([]appsv1.Deployment, error) {
	list, err := s.client.AppsV1().Deployments(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: shopPods})
	if err != nil {
		return nil, fmt.Errorf("list the shop's processes: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("there is no shop in the namespace %s", s.Namespace)
	}
	return list.Items, nil
}

// labImage is that of the import job, which runs lab as well.
func (s *Shop) labImage(ctx context.Context) (string, error) {
	jobs, err := s.client.BatchV1().Jobs(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: partLabel + "=" + labPart})
	if err != nil {
		return "", fmt.Errorf("find lab's image: %w", err)
	}
	for i := range jobs.Items {
		for _, c := range jobs.Items[i].Spec.Template.Spec.Containers {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("--image: the namespace %s has no import job to take lab's image from", s.Namespace)
}
