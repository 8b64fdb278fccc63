// Prints the manifests of deploy/chart, CRDs included, without a cluster.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/strvals"

	chart "tautline.io/chart-tests"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run() error {
	var release chart.Release
	var sets []string
	flag.StringVar(&release.Dir, "chart", chart.Dir, "the chart's `folder`")
	flag.StringVar(&release.Name, "release", "tautline", "`name` of the release")
	flag.StringVar(&release.Namespace, "namespace", "tautline-system", "`namespace` of the release")
	flag.StringVar(&release.KubeVersion, "kube-version", "", "`version` of the cluster, such as v1.36.3")
	values := flag.String("values", "", "`file` with values")
	notes := flag.Bool("notes", false, "print the notes instead")
	flag.Func("set", "`KEY=VALUE`, as of helm; repeatable", func(set string) error {
		sets = append(sets, set)
		return nil
	})
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "Usage: render [OPTIONS]\n\nExample: render --values values.yaml --set scheduler.mode=existing")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; values are a flag, --values FILE", flag.Arg(0))
	}
	release.Values = map[string]any{}
	if *values != "" {
		read, err := common.ReadValuesFile(*values)
		if err != nil {
			return fmt.Errorf("%s: %w", *values, err)
		}
		release.Values = read
	}
	for _, set := range sets {
		if err := strvals.ParseInto(set, release.Values); err != nil {
			return fmt.Errorf("--set %s: %w", set, err)
		}
	}
	rendered, err := release.Render()
	if err != nil {
		return err
	}
	if *notes {
		fmt.Print(rendered.Notes)
		return nil
	}
	fmt.Print("---\n" + strings.Join(rendered.Manifests, "---\n"))
	return nil
}
