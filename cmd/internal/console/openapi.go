package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// schema is one of JSON Schema, or another part of the API's description.
type schema = map[string]any

// describe makes the API's description of the lists of what it tells and does.
var describe = sync.OnceValues(func() ([]byte, error) {
	paths := make(map[string]schema)
	add := func(path, method string, query []schema, about schema) {
		if paths[path] == nil {
			paths[path] = make(schema)
		}
		var params []schema
		for _, p := range pathParams {
			if strings.Contains(path, "{"+p["name"].(string)+"}") {
				params = append(params, p)
			}
		}
		if params = append(params, query...); params != nil {
			about["parameters"] = params
		}
		paths[path][method] = about
	}
	for _, e := range apiReads {
		add(e.path, "get", e.query, schema{"operationId": e.id, "summary": e.about, "responses": responses(e.answer)})
	}
	add("/openapi.json", "get", nil, schema{
		"operationId": "description", "summary": "This description",
		"responses": schema{"200": response(schema{"type": "object"}, "OK")},
	})
	for _, ch := range changes {
		add(ch.api(), "post", nil, schema{
			"operationId": ch.id, "summary": ch.about, "responses": responses("Outcome"),
			"requestBody": schema{"required": true, "content": schema{"application/json": schema{"schema": ch.schema()}}},
		})
	}
	return json.MarshalIndent(schema{
		"openapi": "3.1.0",
		"info": schema{
			"title": "Trellis console", "version": "1",
			"description": "What the console shows and does, as JSON. Statistics have the protocol's own keys; " +
				"a server may have more than are known here. Changes need a console that may write, and who asks for one " +
				"has to authenticate; the content type is application/json. They are done at once, without a further question.",
		},
		"servers": []schema{{"url": apiRoot}},
		"paths":   paths,
		"components": schema{"schemas": schema{
			"Error": schemaOf[apiError](), "Outcome": schemaOf[outcome](), "Actions": schemaOf[apiActions](),
			"Connections": schemaOf[apiConnections](), "Jobs": schemaOf[apiJobs](), "Tubes": schemaOf[apiTubes](),
			"Statistics": schema{"type": "object", "additionalProperties": true},
			"Tube":       tubeSchema(),
			"Job":        object(integers("id", "pri", "age", "size", "time-left"), "id", "pri", "age", "size"),
		}},
	}, "", " ")
})

func serveDescription(w http.ResponseWriter, _ *http.Request) {
	text, err := describe()
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, apiError{err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// pathParams are the parameters that paths have.
var pathParams = []schema{
	{
		"name": "tube", "in": "path", "required": true, "schema": schema{"type": "string"},
		"description": "The name of the tube, escaped: a / as %2F; the tubes . and .. as ~. and ~..",
	},
	{
		"name": "group", "in": "path", "required": true, "schema": schema{"type": "string"},
		"description": "The name of the group, escaped as that of a tube",
	},
	{
		"name": "id", "in": "path", "required": true, "schema": schema{"type": "integer", "minimum": 0},
		"description": "The id of the job",
	},
	{
		"name": "connection", "in": "path", "required": true, "schema": schema{"type": "integer", "minimum": 0},
		"description": "The id of the connection",
	},
}

// param is a parameter of a query; more is what else its schema has.
func param(name, kind, about string, more schema) schema {
	s := schema{"type": kind}
	maps.Copy(s, more)
	return schema{"name": name, "in": "query", "description": about, "schema": s}
}

// between is the schema of a number that may be left out.
func between(least, most, otherwise uint64) schema {
	return schema{"minimum": least, "maximum": most, "default": otherwise}
}

// schema is that of the JSON that the change takes.
func (ch *change) schema() schema {
	properties, required := make(schema), []string(nil)
	for _, f := range ch.fields {
		properties[f.name] = f.schema
		if !f.optional {
			required = append(required, f.name)
		}
	}
	return object(properties, required...)
}

func responses(good string) schema {
	return schema{
		"200": response(ref(good), "OK"),
		"default": response(ref("Error"),
			"Why not: 400 a mistake in the request, 403 not allowed, 404 no such thing, 409 the server refuses, "+
				"413 too large, 421 an unknown host, 501 the server lacks the command, "+
				"502 and 504 the server does not answer, 503 too busy."),
	}
}

func response(s schema, about string) schema {
	return schema{"description": about, "content": schema{"application/json": schema{"schema": s}}}
}

func ref(name string) schema { return schema{"$ref": "#/components/schemas/" + name} }

func object(properties schema, required ...string) schema {
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func integers(names ...string) schema {
	s := make(schema)
	for _, name := range names {
		s[name] = schema{"type": "integer"}
	}
	return s
}

// tubeSchema is that of a tube in a list.
func tubeSchema() schema {
	properties, required := make(schema), []string(nil)
	for _, c := range operate.ColumnsOf(operate.API) {
		s := schema{"type": "integer"}
		switch c.Kind {
		case operate.Name:
			s["type"] = "string"
		case operate.Rate, operate.Elapsed:
			s["type"] = "number"
		}
		if c.About != "" {
			s["description"] = c.About
		}
		properties[c.JSON] = s
		if !c.Local {
			required = append(required, c.JSON)
		}
	}
	return object(properties, required...)
}

// schemaOf is the schema of an answer's type. The tag about says what a field is, and each what
// the entries of a list are.
func schemaOf[T any]() schema { return schemaOfType(reflect.TypeFor[T]()) }

func schemaOfType(t reflect.Type) schema {
	switch t.Kind() {
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Int, reflect.Uint64:
		return schema{"type": "integer"}
	case reflect.Slice:
		if t == reflect.TypeFor[client.Fields]() {
			return ref("Statistics")
		}
		return schema{"type": "array", "items": schemaOfType(t.Elem())}
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return schema{"type": "string", "format": "date-time"}
		}
		properties, required := make(schema), []string(nil)
		for f := range t.Fields() {
			name := f.Tag.Get("json")
			if name == "" {
				continue
			}
			s := schemaOfType(f.Type)
			if about := f.Tag.Get("about"); about != "" {
				s["description"] = about
			}
			if each := f.Tag.Get("each"); each != "" {
				s["items"] = ref(each)
			}
			properties[name] = s
			required = append(required, name)
		}
		return object(properties, required...)
	}
	panic(fmt.Sprintf("console: the description has no schema for %v", t))
}
