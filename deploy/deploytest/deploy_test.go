package deploytest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds maps the kinds of objects that the manifests may contain to their types.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                     func() any { return new(apps.Deployment) },
	"autoscaling/v2 HorizontalPodAutoscaler": func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"v1 Service":                             func() any { return new(core.Service) },
	"networking.k8s.io/v1 NetworkPolicy":     func() any { return new(networking.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":          func() any { return new(policy.PodDisruptionBudget) },
}

// The manifests are valid for Kubernetes: no field is unknown, duplicate or of the wrong type, and none sets a namespace.
func TestKubernetes(t *testing.T) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace string }
		}
		if err := yaml.Unmarshal(b, &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		build := kinds[head.APIVersion+" "+head.Kind]
		if build == nil {
			t.Errorf("%s: unknown kind %s %s", file, head.APIVersion, head.Kind)
			continue
		}
		if err := yaml.UnmarshalStrict(b, build()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if head.Metadata.Namespace != "" {
			t.Errorf("%s: sets the namespace %s", file, head.Metadata.Namespace)
		}
		seen++
	}
	if seen < len(kinds) {
		t.Errorf("found only %d manifests", seen)
	}
}

// The compose file is valid for Docker Compose.
func TestCompose(t *testing.T) {
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: "../compose", ConfigFiles: types.ToConfigFiles([]string{"../compose/compose.yaml"}), Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if names := project.ServiceNames(); len(names) != 3 {
		t.Errorf("the services are %v", names)
	}
	// Compose replaces "$$" by the "$" that the shell expands.
	redis, err := project.GetService("redis")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := redis.Command[2][:74], `exec redis-server --requirepass "$(cat /run/secrets/redis-password)" --max`; got != want {
		t.Errorf("the command of Redis is %s, want %s…", got, want)
	}
}
