package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is a key of values.yaml.
type value struct {
	path        string
	description string
	node        *yaml.Node
	schema      map[string]any // Of its "# @schema" line.
	children    []value
}

var jsonTypes = map[string]string{
	"!!bool": "boolean", "!!int": "integer", "!!str": "string", "!!seq": "array", "!!map": "object",
}

// Documentation makes values.schema.json and the table of values from values.yaml.
func Documentation(valuesYAML []byte) (schema []byte, table string, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(valuesYAML, &document); err != nil {
		return nil, "", err
	}
	values, err := read("", document.Content[0])
	if err != nil {
		return nil, "", err
	}
	root := object(values)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	// Helm passes it to subcharts.
	root["properties"].(map[string]any)["global"] = map[string]any{"type": "object"}
	text := &bytes.Buffer{}
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(root); err != nil {
		return nil, "", err
	}
	rows := &strings.Builder{}
	rows.WriteString("| value | default | description |\n|---|---|---|\n")
	if err := write(rows, values); err != nil {
		return nil, "", err
	}
	return text.Bytes(), rows.String(), nil
}

func read(prefix string, mapping *yaml.Node) ([]value, error) {
	var values []value
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		v := value{path: prefix + key.Value, node: node, schema: map[string]any{}}
		var text []string
		for line := range strings.SplitSeq(key.HeadComment, "\n") {
			line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
			if extra, ok := strings.CutPrefix(line, "@schema "); ok {
				if err := json.Unmarshal([]byte(extra), &v.schema); err != nil {
					return nil, fmt.Errorf("%s: @schema: %w", v.path, err)
				}
			} else if line != "" {
				text = append(text, line)
			}
		}
		v.description = strings.Join(text, " ")
		if v.schema["additionalProperties"] == nil && node.Kind == yaml.MappingNode {
			children, err := read(v.path+".", node)
			if err != nil {
				return nil, err
			}
			v.children = children
		} else if v.description == "" {
			return nil, fmt.Errorf("%s has no comment", v.path)
		}
		values = append(values, v)
	}
	return values, nil
}

func object(values []value) map[string]any {
	properties := map[string]any{}
	for _, v := range values {
		schema := map[string]any{"type": jsonTypes[v.node.Tag]}
		if v.children != nil {
			schema = object(v.children)
		}
		for key, constraint := range v.schema {
			schema[key] = constraint
		}
		if v.description != "" {
			schema["description"] = v.description
		}
		properties[v.path[strings.LastIndex(v.path, ".")+1:]] = schema
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func write(rows *strings.Builder, values []value) error {
	for _, v := range values {
		if v.children != nil {
			if v.description != "" {
				fmt.Fprintf(rows, "| `%s` | | %s |\n", v.path, v.description)
			}
			if err := write(rows, v.children); err != nil {
				return err
			}
			continue
		}
		var fallback any
		if err := v.node.Decode(&fallback); err != nil {
			return err
		}
		text := &bytes.Buffer{}
		encoder := json.NewEncoder(text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(fallback); err != nil {
			return err
		}
		fmt.Fprintf(rows, "| `%s` | `%s` | %s |\n", v.path, strings.TrimSpace(text.String()), v.description)
	}
	return nil
}
