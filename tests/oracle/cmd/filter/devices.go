package main

import (
	"context"
	"fmt"
	"time"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// The time after which the caches of devices are given up.
const deviceCachesTimeout = 20 * time.Second

// deviceCaches holds what the plugins know of devices, made as kube-scheduler makes it.
type deviceCaches struct {
	manager fwk.SharedDRAManager
	synced  []cache.DoneChecker
}

func newDeviceCaches(ctx context.Context, factory informers.SharedInformerFactory) (*deviceCaches, error) {
	api := factory.Resource().V1()
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), api.ResourceClaims().Informer(), "ResourceClaim", "", nil)
	// DeviceTaintRules are off by default, so the tracker only lists slices.
	slices, err := tracker.StartTracker(ctx, tracker.Options{
		EnableConsumableCapacity: true,
		SliceInformer:            api.ResourceSlices(),
	})
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	// The cache of extended resources learns of classes from their informer alone.
	resources, ok := manager.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache)
	if !ok {
		return nil, fmt.Errorf("classes are resolved by a %T", manager.DeviceClassResolver())
	}
	ofClasses, err := api.DeviceClasses().Informer().AddEventHandler(resources)
	if err != nil {
		return nil, err
	}
	// The manager's own handler of claims was added before this one, and shares its registration.
	ofClaims := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{})
	return &deviceCaches{
		manager: manager,
		synced: []cache.DoneChecker{
			ofClasses.HasSyncedChecker(), ofClaims.HasSyncedChecker(), slices.HasSyncedChecker(),
		},
	}, nil
}

// wait returns once the caches have all objects of the informers, which must be started.
func (c *deviceCaches) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deviceCachesTimeout)
	defer cancel()
	for _, synced := range c.synced {
		select {
		case <-synced.Done():
		case <-ctx.Done():
			return fmt.Errorf("%s is not filled: %w", synced.Name(), ctx.Err())
		}
	}
	return nil
}

// hasDevices returns whether the cluster has objects of DRA. Without them, nothing of DRA takes part.
func (r request) hasDevices() bool {
	return len(r.Slices)+len(r.DeviceClasses)+len(r.ResourceClaims) > 0
}

// devices returns the objects of DRA, defaulted and validated as the API server does.
func (r request) devices() ([]k8sruntime.Object, error) {
	var all []k8sruntime.Object
	for _, class := range r.DeviceClasses {
		if err := check(class, validation.ValidateDeviceClass); err != nil {
			return nil, fmt.Errorf("class %s: %w", class.Name, err)
		}
		all = append(all, class)
	}
	for _, slice := range r.Slices {
		if err := check(slice, validation.ValidateResourceSlice); err != nil {
			return nil, fmt.Errorf("slice %s: %w", slice.Name, err)
		}
		all = append(all, slice)
	}
	for _, claim := range r.ResourceClaims {
		// The specification is validated when the claim is created, and the status when it is
		// written later.
		claim.ResourceVersion = "1"
		valid := func(written *resource.ResourceClaim) field.ErrorList {
			created := written.DeepCopy()
			created.Status = resource.ResourceClaimStatus{}
			errs := validation.ValidateResourceClaim(created)
			return append(errs, validation.ValidateResourceClaimStatusUpdate(written, created)...)
		}
		if err := check(claim, valid); err != nil {
			return nil, fmt.Errorf("claim %s: %w", claim.Name, err)
		}
		all = append(all, claim)
	}
	return all, nil
}

// check defaults an object in place, and validates it.
func check[T any](object k8sruntime.Object, validate func(*T) field.ErrorList) error {
	legacyscheme.Scheme.Default(object)
	internal := new(T)
	if err := legacyscheme.Scheme.Convert(object, internal, nil); err != nil {
		return err
	}
	return validate(internal).ToAggregate()
}
