// Command filter answers which nodes pass kube-scheduler's own filter plugins.
// One JSON line in, one out, in order:
//
//	{"nodes": [...], "pods": [...], "namespaces": [...], "volumes": [...],
//	 "claims": [...], "classes": [...], "slices": [...], "deviceClasses": [...],
//	 "resourceClaims": [...], "pending": [...], "alone": false}
//	{"pending": [{"n1": "", "n2": "Insufficient cpu"}, ...]} or {"error": "..."}
//
// A node with an empty text can host the pending pod, which is then on the
// first such node for the pods after it, unless each pod is asked for alone.
// Pods are defaulted, prepared and validated as the API server does at
// creation; their status stays as given.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"tautline.io/oracle/internal/lines"
)

// The plugins whose rules Tautline's own node filter has, and the two without
// which a framework is not built.
var enabled = []string{
	names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity,
	names.NodePorts, names.NodeResourcesFit, names.PodTopologySpread,
	names.InterPodAffinity, names.VolumeBinding, names.VolumeRestrictions, names.VolumeZone,
	names.PrioritySort, names.DefaultBinder,
}

// The times in which the volume binder takes over a few objects: usually, and on a machine that is
// very busy.
const (
	binderDelay        = 30 * time.Millisecond
	binderPatientDelay = 2 * time.Second
)

type request struct {
	Nodes      []*corev1.Node                  `json:"nodes"`
	Pods       []*corev1.Pod                   `json:"pods"`
	Namespaces []*corev1.Namespace             `json:"namespaces"`
	Volumes    []*corev1.PersistentVolume      `json:"volumes"`
	Claims     []*corev1.PersistentVolumeClaim `json:"claims"`
	Classes    []*storagev1.StorageClass       `json:"classes"`
	// The objects of DRA.
	Slices         []*resourcev1.ResourceSlice `json:"slices"`
	DeviceClasses  []*resourcev1.DeviceClass   `json:"deviceClasses"`
	ResourceClaims []*resourcev1.ResourceClaim `json:"resourceClaims"`
	Pending        []*corev1.Pod               `json:"pending"`
	// Whether no pending pod takes anything from the others.
	Alone bool `json:"alone"`
	// Whether the volume binder gets more time, since an earlier answer was not as expected.
	Patient bool `json:"patient"`
}

type answer map[string]any

func main() {
	metrics.Register()
	// Off by default in this version; without it the operators Lt and Gt are refused.
	if err := utilfeature.DefaultMutableFeatureGate.Set("TaintTolerationComparisonOperators=true"); err != nil {
		fmt.Fprintln(os.Stderr, "filter:", err)
		os.Exit(1)
	}
	withDevices := slices.Concat(enabled, []string{names.DynamicResources})
	var profiles [2]*config.KubeSchedulerProfile
	for i, plugins := range [][]string{enabled, withDevices} {
		profile, err := profile(plugins)
		if err != nil {
			fmt.Fprintln(os.Stderr, "filter:", err)
			os.Exit(1)
		}
		profiles[i] = profile
	}
	lines.Each(func(r request) any {
		profile := profiles[0]
		if r.hasDevices() {
			profile = profiles[1]
		}
		pending, err := placeAll(profile, r)
		if err != nil {
			return answer{"error": err.Error()}
		}
		return answer{"pending": pending}
	})
}

// The default profile with these plugins alone.
func profile(enabled []string) (*config.KubeSchedulerProfile, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := defaults.Profiles[0].DeepCopy()
	profile.Plugins = &config.Plugins{}
	for _, name := range enabled {
		plugin := config.Plugin{Name: name, Weight: 1}
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, plugin)
	}
	return profile, nil
}

// Filters the nodes of each pending pod, and puts the pod on the first that is left.
func placeAll(profile *config.KubeSchedulerProfile, r request) ([]map[string]string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, pods := range [][]*corev1.Pod{r.Pods, r.Pending} {
		for i, pod := range pods {
			created, err := created(ctx, pod)
			if err != nil {
				return nil, err
			}
			pods[i] = created
		}
	}
	devices, err := r.devices()
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset(append(r.objects(), devices...)...)
	factory := informers.NewSharedInformerFactory(client, 0)
	// kube-scheduler's snapshot leaves out pods that have ended, and nodes that
	// are gone with their pods.
	exists := sets.New[string]()
	for _, node := range r.Nodes {
		exists.Insert(node.Name)
	}
	var running []*corev1.Pod
	for _, pod := range r.Pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !ended && exists.Has(pod.Spec.NodeName) {
			running = append(running, pod)
		}
	}
	now := &current{}
	options := []runtime.Option{
		runtime.WithInformerFactory(factory),
		runtime.WithClientSet(client),
		runtime.WithSnapshotSharedLister(now),
	}
	var caches *deviceCaches
	if r.hasDevices() {
		if caches, err = newDeviceCaches(ctx, factory); err != nil {
			return nil, err
		}
		options = append(options, runtime.WithSharedDRAManager(caches.manager))
	}
	scheduler, err := runtime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile, options...)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, isSynced := range factory.WaitForCacheSync(ctx.Done()) {
		if !isSynced {
			return nil, fmt.Errorf("%v cannot be listed", kind)
		}
	}
	if caches != nil {
		if err := caches.wait(ctx); err != nil {
			return nil, err
		}
	}
	if len(r.Claims) > 0 {
		// The binder's own caches follow the informers, and tell nobody when.
		if r.Patient {
			time.Sleep(binderPatientDelay)
		} else {
			time.Sleep(binderDelay)
		}
	}
	var all []map[string]string
	for _, pod := range r.Pending {
		now.Snapshot = cache.NewSnapshot(running, r.Nodes)
		found, err := filter(ctx, scheduler, now.Snapshot, r.Nodes, pod)
		if err != nil {
			return nil, err
		}
		all = append(all, found)
		if r.Alone {
			continue
		}
		for _, node := range slices.Sorted(maps.Keys(found)) {
			if found[node] == "" {
				pod.Spec.NodeName = node
				running = append(running, pod)
				break
			}
		}
	}
	return all, nil
}

// The objects that the plugins read from informers.
func (r request) objects() []k8sruntime.Object {
	var all []k8sruntime.Object
	for _, namespace := range r.Namespaces {
		all = append(all, namespace)
	}
	for _, volume := range r.Volumes {
		all = append(all, volume)
	}
	for _, claim := range r.Claims {
		all = append(all, claim)
	}
	for _, class := range r.Classes {
		all = append(all, class)
	}
	return all
}

// The snapshot that the plugins read now.
type current struct {
	*cache.Snapshot
}

func filter(ctx context.Context, scheduler framework.Framework, snapshot *cache.Snapshot, nodes []*corev1.Node, pod *corev1.Pod) (map[string]string, error) {
	state := framework.NewCycleState()
	only, status, _ := scheduler.RunPreFilterPlugins(ctx, state, pod)
	found := make(map[string]string, len(nodes))
	for _, node := range nodes {
		switch {
		case !status.IsSuccess():
			found[node.Name] = text(status)
		case !only.AllNodes() && !only.NodeNames.Has(node.Name):
			found[node.Name] = "excluded before the filters"
		default:
			info, err := snapshot.Get(node.Name)
			if err != nil {
				return nil, err
			}
			found[node.Name] = text(scheduler.RunFilterPlugins(ctx, state, pod, info))
		}
	}
	return found, nil
}

func text(status *fwk.Status) string {
	if status.IsSuccess() {
		return ""
	}
	if message := strings.Join(status.Reasons(), ", "); message != "" {
		return message
	}
	return status.Code().String()
}

// The pod as the API server stores it, with its own status.
func created(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	legacyscheme.Scheme.Default(pod)
	// What admission sets when it is absent.
	if pod.Spec.Priority == nil {
		pod.Spec.Priority = new(int32)
	}
	var internal core.Pod
	if err := legacyscheme.Scheme.Convert(pod, &internal, nil); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(ctx, &internal)
	if errs := podregistry.Strategy.Validate(ctx, &internal); len(errs) > 0 {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, errs.ToAggregate())
	}
	var stored corev1.Pod
	if err := legacyscheme.Scheme.Convert(&internal, &stored, nil); err != nil {
		return nil, err
	}
	stored.Status = pod.Status
	stored.UID = types.UID(pod.Namespace + "/" + pod.Name)
	stored.CreationTimestamp = metav1.Time{}
	return &stored, nil
}
