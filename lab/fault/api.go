package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"example.com/watertight/platform/fault"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// serviceFault is the fault of one service, as the API shows it.
type serviceFault struct {
	Service string `json:"service"`
	fault.Fault
}

type faultList struct {
	Faults []serviceFault `json:"faults"`
}

// api is the gateway's /api/v1/faults.
type api struct {
	base   *url.URL
	client http.Client
}

func newAPI(gateway string) (*api, error) {
	base, err := url.Parse(gateway)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("--gateway %q: must be a URL such as http://127.0.0.1:8080", gateway)
	}
	return &api{base: base.JoinPath("api", "v1", "faults")}, nil
}

func (a *api) list(ctx context.Context) ([]serviceFault, error) {
	var answer faultList
	if err := a.call(ctx, http.MethodGet, a.base, nil, &answer); err != nil {
		return nil, err
	}
	return answer.Faults, nil
}

func (a *api) set(ctx context.Context, service string, request fault.Request) (serviceFault, error) {
	var answer serviceFault
	body, err := json.Marshal(request)
	if err != nil {
		return answer, fmt.Errorf("write the request: %w", err)
	}
	return answer, a.call(ctx, http.MethodPut, a.of(service), body, &answer)
}

func (a *api) clear(ctx context.Context, service string) error {
	return a.call(ctx, http.MethodDelete, a.of(service), nil, nil)
}

func (a *api) of(service string) *url.URL { return a.base.JoinPath(url.PathEscape(service)) }

// call sends one request and reads a good answer into answer. The error of a bad one is what the gateway says about it.
func (a *api) call(ctx context.Context, method string, to *url.URL, body []byte, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := a.client.Do(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("the gateway does not answer (is the shop running? see lab up): %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the gateway's answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return refusal(response.StatusCode, content)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(content, answer); err != nil {
		return fmt.Errorf("the answer is not that of a gateway: %w", err)
	}
	return nil
}

// refusal says what the gateway says. Where it knows no such address at all, faults are disabled.
func refusal(status int, content []byte) error {
	var problem struct {
		Detail string            `json:"detail"`
		Errors []json.RawMessage `json:"errors"`
	}
	if json.Unmarshal(content, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("the gateway answers %d %s", status, http.StatusText(status))
	}
	if status == http.StatusNotFound && len(problem.Errors) == 0 {
		return errors.New("the gateway has no faults to set: it runs without FAULTS_ENABLED=true")
	}
	return errors.New(problem.Detail)
}
