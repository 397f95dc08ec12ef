// Reads an exposition with the parsers that Prometheus itself scrapes with, and prints how many samples it found: of
// OpenMetrics, or of the text format if the first argument says so. Anything that they would not take is an error.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

func main() {
	contentType := "application/openmetrics-text; version=1.0.0; charset=utf-8"
	if len(os.Args) > 1 && os.Args[1] == "text" {
		contentType = "text/plain; version=0.0.4; charset=utf-8"
	}
	samples, err := read(contentType)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(samples)
}

func read(contentType string) (int, error) {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 0, err
	}
	parser, err := textparse.New(text, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return len(seen), nil
		}
		if err != nil {
			return 0, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		parser.Labels(&series)
		if seen[series.String()] {
			return 0, fmt.Errorf("%s is there twice", series)
		}
		seen[series.String()] = true
	}
}
