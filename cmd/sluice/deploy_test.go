package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/check"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// installed is the directory of the deployment files.
const installed = "../../deploy"

// deployed checks a configuration file of a deployment with sluice check, and returns it parsed.
func deployed(t *testing.T, file string) config.Config {
	t.Helper()
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	write(t, filepath.Join(os.Getenv("CREDENTIALS_DIRECTORY"), "admin-token"), strings.Repeat("0123456789abcdef", 4))
	file = filepath.Join(installed, file)
	// Secrets have other paths in a container.
	code, stdout, stderr := sluiceRun(t, "check", "-o", "json", file)
	var report check.Report
	err := json.Unmarshal([]byte(stdout), &report)
	report.Findings = slices.DeleteFunc(report.Findings, func(f fileerrors.Diagnostic) bool {
		return strings.Contains(f.Message, "serve would not start on this host: store") && strings.Contains(f.Message, "password: there is no such file or directory")
	})
	if code != term.ExitFine && len(report.Findings) > 0 || err != nil {
		t.Fatalf("sluice check %s: exit %d, %v\n%s%s", file, code, err, stdout, stderr)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// timeToEnd is the maximum time of the service's graceful shutdown, plus a margin.
func timeToEnd(c *config.Config) time.Duration {
	return c.Drain.Delay + c.Drain.Timeout + 5*time.Second
}

// readYAML parses a YAML file into v by way of JSON, because the names of JSON fields are case-insensitive.
func readYAML[T any](t *testing.T, file string) (v T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(installed, file))
	if err != nil {
		t.Fatal(err)
	}
	var content any
	if err = yaml.Unmarshal(b, &content); err == nil {
		if b, err = json.Marshal(content); err == nil {
			err = json.Unmarshal(b, &v)
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

type podLabels map[string]string

// pod contains the fields of a Deployment that the tests check.
type pod struct {
	Metadata struct{ Name string }
	Spec     struct {
		Selector struct{ MatchLabels podLabels }
		Template struct {
			Metadata struct{ Labels podLabels }
			Spec     struct {
				TerminationGracePeriodSeconds int
				AutomountServiceAccountToken  *bool
				SecurityContext               map[string]any
				Containers                    []container
				Volumes                       []struct {
					Name      string
					ConfigMap struct{ Name string }
					Secret    struct{ SecretName string }
				}
			}
		}
	}
}

type container struct {
	Image   string
	Command []string
	Env     []struct{ Name, Value string }
	Ports   []struct {
		Name          string
		ContainerPort int
	}
	StartupProbe, ReadinessProbe, LivenessProbe struct {
		HTTPGet struct{ Path, Port string }
	}
	Resources       struct{ Limits map[string]string }
	SecurityContext map[string]any
	VolumeMounts    []struct {
		Name, MountPath, SubPath string
		ReadOnly                 bool
	}
}

// The Deployment fits the configuration file next to it: ports, paths and shutdown time.
func TestDeployKubernetes(t *testing.T) {
	c := deployed(t, "kubernetes/config/sluice.yaml")
	d := readYAML[pod](t, "kubernetes/deployment.yaml")
	spec := &d.Spec.Template.Spec
	if grace := time.Duration(spec.TerminationGracePeriodSeconds) * time.Second; grace < timeToEnd(&c) {
		t.Errorf("terminationGracePeriodSeconds is %v, but the shutdown takes up to %v", grace, timeToEnd(&c))
	}
	box := spec.Containers[0]
	ports := map[string]int{}
	for _, p := range box.Ports {
		ports[p.Name] = p.ContainerPort
	}
	if len(ports) != 2 || ports["grpc"] != portOf(t, c.GRPC.Address) || ports["http"] != portOf(t, c.HTTP.Address) {
		t.Errorf("the ports are %v, want those of %s and %s", ports, c.GRPC.Address, c.HTTP.Address)
	}
	mounts := map[string]string{}
	for _, m := range box.VolumeMounts {
		if m.SubPath != "" || !m.ReadOnly {
			t.Errorf("%s: a mount must be read-only and without subPath, because files mounted by subPath are never updated: %+v", m.Name, m)
		}
		mounts[m.Name] = m.MountPath
	}
	if got := box.Command[len(box.Command)-1]; got != mounts["config"]+"/sluice.yaml" {
		t.Errorf("the configuration is %s, mounted at %s", got, mounts["config"])
	}
	if want := filepath.Join(mounts["config"], "../rules"); mounts["rules"] != want || filepath.Base(c.Rules.Paths[0]) != "rules" {
		t.Errorf("rules are at %s, and read from %s", mounts["rules"], want)
	}
	if filepath.Dir(c.Store.PasswordFile) != mounts["redis"] {
		t.Errorf("the password is read from %s, and mounted at %s", c.Store.PasswordFile, mounts["redis"])
	}
	names := map[string]bool{}
	for _, v := range spec.Volumes {
		names[v.ConfigMap.Name+v.Secret.SecretName] = mounts[v.Name] != ""
	}
	if !names["sluice-config"] || !names["sluice-rules"] || !names["sluice-redis"] || len(names) != len(mounts) {
		t.Errorf("the volumes are %v", names)
	}
	for key, want := range map[string]any{"runAsNonRoot": true, "runAsUser": 65532.0} {
		if spec.SecurityContext[key] != want {
			t.Errorf("%s is %v", key, spec.SecurityContext[key])
		}
	}
	for key, want := range map[string]any{"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false} {
		if box.SecurityContext[key] != want {
			t.Errorf("%s is %v", key, box.SecurityContext[key])
		}
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("the pod has access to the Kubernetes API")
	}
	if got := box.Env[0].Value; mebi(t, got) >= mebi(t, box.Resources.Limits["memory"]) {
		t.Errorf("%s is %s of %s", box.Env[0].Name, got, box.Resources.Limits["memory"])
	}

	// The probes succeed, even while the store is unavailable.
	b, err := os.ReadFile(filepath.Join(installed, "kubernetes/config/sluice.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	write(t, password, "secret")
	text := regexp.MustCompile(`address: ":\d+"`).ReplaceAllString(string(b), "address: '127.0.0.1:0'")
	text = strings.NewReplacer("../rules", rulesDir(t, "  - {key: k}\n"), "redis://redis:6379", "redis://127.0.0.1:1", "delay: 5s", "delay: 0s",
		c.Store.PasswordFile, password, "format: json", "format: text").Replace(text)
	p := startServe(t, text)
	for _, probe := range []string{box.StartupProbe.HTTPGet.Path, box.ReadinessProbe.HTTPGet.Path, box.LivenessProbe.HTTPGet.Path} {
		if got := p.get(t, probe); got != http.StatusOK {
			t.Errorf("%s: status %d", probe, got)
		}
	}
	monitor := readYAML[struct {
		Spec struct{ Endpoints []struct{ Path string } }
	}](t, "kubernetes/optional/servicemonitor.yaml")
	if got := p.get(t, monitor.Spec.Endpoints[0].Path); got != http.StatusOK {
		t.Errorf("%s: status %d for Prometheus", monitor.Spec.Endpoints[0].Path, got)
	}
	for _, port := range []string{box.StartupProbe.HTTPGet.Port, box.ReadinessProbe.HTTPGet.Port, box.LivenessProbe.HTTPGet.Port} {
		if port != "http" {
			t.Errorf("a probe uses port %s", port)
		}
	}
}

// mebi parses sizes such as 256Mi or 230MiB.
func mebi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSuffix(s, "B"), "Mi"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The other manifests refer to the same pods and ports, and the kustomization lists all files.
func TestDeployKubernetesTogether(t *testing.T) {
	d := readYAML[pod](t, "kubernetes/deployment.yaml")
	want := d.Spec.Template.Metadata.Labels["app.kubernetes.io/name"]
	service := readYAML[struct {
		Metadata struct{ Labels podLabels }
		Spec     struct {
			Selector podLabels
			Ports    []struct {
				Name, TargetPort string
				Port             int
			}
		}
	}](t, "kubernetes/service.yaml")
	type selecting struct {
		Spec struct {
			Selector, PodSelector struct{ MatchLabels podLabels }
			ScaleTargetRef        struct{ Name string }
			Endpoints             []struct{ Port, Path string }
		}
	}
	budget, policy := readYAML[selecting](t, "kubernetes/disruption.yaml"), readYAML[selecting](t, "kubernetes/networkpolicy.yaml")
	monitor, scaler := readYAML[selecting](t, "kubernetes/optional/servicemonitor.yaml"), readYAML[selecting](t, "kubernetes/autoscaler.yaml")
	for what, got := range map[string]podLabels{
		"deployment": d.Spec.Selector.MatchLabels, "service": service.Spec.Selector, "budget": budget.Spec.Selector.MatchLabels,
		"policy": policy.Spec.PodSelector.MatchLabels, "monitor": monitor.Spec.Selector.MatchLabels, "service's own": service.Metadata.Labels,
	} {
		if len(got) != 1 || got["app.kubernetes.io/name"] != want {
			t.Errorf("the %s is about %v", what, got)
		}
	}
	if scaler.Spec.ScaleTargetRef.Name != d.Metadata.Name {
		t.Errorf("the autoscaler scales %s", scaler.Spec.ScaleTargetRef.Name)
	}
	ports := map[string]int{}
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort] != p.Port || p.Name != p.TargetPort {
			t.Errorf("the service has %+v, the pod %v", p, ports)
		}
	}
	if e := monitor.Spec.Endpoints[0]; ports[e.Port] == 0 {
		t.Errorf("the monitor scrapes port %s", e.Port)
	}

	k := readYAML[struct {
		Resources          []string
		Images             []struct{ Name, NewName, NewTag, Digest string }
		ConfigMapGenerator []struct{ Files []string }
	}](t, "kubernetes/kustomization.yaml")
	listed := map[string]bool{"kustomization.yaml": true}
	for _, name := range k.Resources {
		listed[name] = true
	}
	for _, g := range k.ConfigMapGenerator {
		for _, name := range g.Files {
			listed[name] = true
		}
	}
	for _, pattern := range []string{"*.yaml", "config/*", "rules/*"} {
		found, err := filepath.Glob(filepath.Join(installed, "kubernetes", pattern))
		if err != nil || len(found) == 0 {
			t.Fatal(err, pattern)
		}
		for _, file := range found {
			name, _ := filepath.Rel(filepath.Join(installed, "kubernetes"), file)
			if !listed[name] {
				t.Errorf("%s is not in the kustomization", name)
			}
			delete(listed, name)
		}
	}
	if len(listed) > 0 || k.Images[0].Name != d.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("the kustomization lists %v, which do not exist, and the image %s", listed, k.Images[0].Name)
	}
}

// The image is set in one place, as a digest in the kustomization, which no moved tag can change. Pods may use only the DNS
// resolver of the cluster.
func TestDeployKubernetesPins(t *testing.T) {
	k := readYAML[struct {
		Images []struct{ Name, NewName, NewTag, Digest string }
	}](t, "kubernetes/kustomization.yaml")
	if i := k.Images[0]; len(k.Images) != 1 || i.NewTag != "" || !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(i.Digest) || strings.ContainsAny(i.NewName, "@") {
		t.Errorf("the images are %+v: want one, by digest", k.Images)
	}
	policy := readYAML[struct {
		Spec struct {
			Egress []struct {
				To []struct {
					NamespaceSelector, PodSelector *struct{ MatchLabels podLabels }
				}
				Ports []struct{ Port int }
			}
		}
	}](t, "kubernetes/networkpolicy.yaml")
	resolvers := 0
	for _, e := range policy.Spec.Egress {
		if len(e.To) == 0 || len(e.Ports) == 0 {
			t.Errorf("an egress rule allows every address or every port: %+v", e)
		}
		for _, p := range e.Ports {
			if p.Port != 53 {
				continue
			}
			for _, to := range e.To {
				resolvers++
				if to.NamespaceSelector == nil || to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "kube-system" ||
					to.PodSelector == nil || to.PodSelector.MatchLabels["k8s-app"] != "kube-dns" {
					t.Errorf("port 53 is open to %+v", to)
				}
			}
		}
	}
	if resolvers != 2 { // UDP and TCP
		t.Errorf("the resolver has %d ports", resolvers)
	}
}

// The compose file fits the configuration file next to it, and the files that it mounts exist.
func TestDeployCompose(t *testing.T) {
	c := deployed(t, "compose/config/sluice.yaml")
	f := readYAML[struct {
		Services map[string]struct {
			Build, User     string
			Command         []string
			Ports           []string
			Volumes         []string
			Secrets         []string
			StopGracePeriod string `json:"stop_grace_period"`
			ReadOnly        bool   `json:"read_only"`
		}
		Secrets map[string]struct{ File string }
		Volumes map[string]any
	}](t, "compose/compose.yaml")
	sluice := f.Services["sluice"]
	if grace, err := time.ParseDuration(sluice.StopGracePeriod); err != nil || grace < timeToEnd(&c) {
		t.Errorf("the stop timeout is %s, but the shutdown takes up to %v", sluice.StopGracePeriod, timeToEnd(&c))
	}
	if _, err := os.Stat(filepath.Join(installed, "compose", sluice.Build, "Dockerfile")); err != nil {
		t.Error(err)
	}
	mounted := map[string]string{} // path in the container by file
	for name, s := range f.Services {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: %s is published on an address other than loopback", name, port)
			}
		}
		for _, v := range s.Volumes {
			parts := strings.Split(v, ":")
			_, named := f.Volumes[parts[0]]
			if _, err := os.Stat(filepath.Join(installed, "compose", parts[0])); err != nil && !named {
				t.Errorf("%s mounts %v", name, err)
			}
			if !named && parts[len(parts)-1] != "ro" {
				t.Errorf("%s may write to %s", name, parts[0])
			}
			mounted[parts[0]] = parts[1]
		}
		for _, secret := range s.Secrets {
			if f.Secrets[secret].File == "" {
				t.Errorf("%s: no secret %s", name, secret)
			}
		}
	}
	if got := sluice.Command[len(sluice.Command)-1]; got != mounted["./config"]+"/sluice.yaml" {
		t.Errorf("the configuration is %s, mounted at %s", got, mounted["./config"])
	}
	if want := filepath.Join(mounted["./config"], "../rules"); mounted["./rules"] != want {
		t.Errorf("rules are at %s, and read from %s", mounted["./rules"], want)
	}
	if c.Store.PasswordFile != "/run/secrets/"+sluice.Secrets[0] || !strings.Contains(strings.Join(f.Services["redis"].Command, " "), c.Store.PasswordFile) {
		t.Errorf("the password is read from %s", c.Store.PasswordFile)
	}
	for i, address := range []string{c.HTTP.Address, c.GRPC.Address} {
		if want := "127.0.0.1" + address + address; sluice.Ports[i] != want {
			t.Errorf("port %s, want %s", sluice.Ports[i], want)
		}
	}
	if !sluice.ReadOnly || sluice.User != "65532:65532" {
		t.Error("the container may do more than it needs to")
	}
	scrape := readYAML[struct {
		RuleFiles     []string `json:"rule_files"`
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}](t, "compose/prometheus.yaml")
	if got := scrape.ScrapeConfigs[0].StaticConfigs[0].Targets[0]; got != "sluice"+c.HTTP.Address {
		t.Errorf("Prometheus scrapes %s", got)
	}
}

// systemd accepts the unit, rates its sandboxing as good, and its stop timeout is long enough for the service.
func TestDeploySystemd(t *testing.T) {
	c := deployed(t, "systemd/sluice.yaml")
	b, err := os.ReadFile(filepath.Join(installed, "systemd/sluice.service"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(text)
	if d, err := time.ParseDuration(stop[1]); err != nil || d < timeToEnd(&c) {
		t.Errorf("the stop timeout is %s, but the shutdown takes up to %v", stop[1], timeToEnd(&c))
	}
	if want := filepath.Join(os.Getenv("CREDENTIALS_DIRECTORY"), "admin-token"); c.Admin.TokenFile != want || !strings.Contains(text, "\nLoadCredential=admin-token:/") {
		t.Errorf("the token is read from %s, but the credential is %s", c.Admin.TokenFile, want)
	}
	if !strings.Contains(text, "\nExecReload=/bin/kill -HUP $MAINPID\n") {
		t.Error("a reload does not send SIGHUP")
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("systemd-analyze is not installed")
	}
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "sluice.service")
	write(t, unit, strings.ReplaceAll(text, "/usr/local/bin/sluice", self)) // a path that exists
	for _, args := range [][]string{{"verify", "--man=no", unit}, {"security", "--offline=yes", "--threshold=15", "--no-pager", unit}} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
