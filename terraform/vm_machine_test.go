package terraform_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// machine is the part of cloud-init's configuration that the modules write.
type machine struct {
	text     string
	Packages []string   `json:"packages"`
	Commands [][]string `json:"runcmd"`
	Files    []struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Content     string `json:"content"`
	} `json:"write_files"`
}

const (
	envFile = "/etc/carillon/carillon.env"
	dropIn  = "/etc/systemd/system/carillon.service.d/10-terraform.conf"
)

// machineOf returns what the machines of a state are told at their first boot; nil if it has none.
func machineOf(s state) (*machine, error) {
	encoded := ""
	for _, r := range s.all("aws_launch_template") {
		encoded += r.text("user_data")
	}
	for _, r := range s.all("aws_instance") {
		encoded += r.text("user_data_base64")
	}
	if encoded == "" {
		if len(s.machines()) > 0 {
			return nil, errors.New("the machine has no user data")
		}
		return nil, nil //nolint:nilnil // modules without machines
	}
	compressed, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	if len(compressed) > 16384 {
		return nil, fmt.Errorf("the user data has %d bytes, EC2 takes 16384", len(compressed))
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	return parseMachine(string(text))
}

func parseMachine(text string) (*machine, error) {
	m := machine{text: text}
	body, ok := strings.CutPrefix(text, "#cloud-config\n")
	if !ok {
		return nil, fmt.Errorf("cloud-init does not recognise user data that begins with %.40q", text)
	}
	return &m, json.Unmarshal([]byte(body), &m)
}

// userData encodes a text as launch templates have it.
func userData(text string) map[string]any {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // to memory
	_ = w.Close()
	return map[string]any{"user_data": base64.StdEncoding.EncodeToString(b.Bytes())}
}

// file returns the content of a file, empty if it is not written.
func (m *machine) file(path string) string {
	for _, f := range m.Files {
		if f.Path == path {
			return f.Content
		}
	}
	return ""
}

// setting returns the value of NAME=value in a file.
func (m *machine) setting(path, name string) string {
	if found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(m.file(path)); found != nil {
		return found[1]
	}
	return ""
}

// machines returns what describes machines.
func (s state) machines() []resource {
	return append(s.all("aws_launch_template"), s.all("aws_instance")...)
}

// nested returns the first block of a name.
func (r resource) nested(names ...string) resource {
	for _, name := range names {
		list, _ := r.Values[name].([]any)
		r.Values = nil
		if len(list) > 0 {
			r.Values, _ = list[0].(map[string]any)
		}
	}
	return r
}

// value returns an attribute as text: launch templates hold booleans as text.
func (r resource) value(attribute string) string { return fmt.Sprint(r.Values[attribute]) }
