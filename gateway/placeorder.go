package gateway

import (
	"errors"
	"net/http"
	"strings"

	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/strictjson"
)

// idempotencyHeader carries the key that the client chose for the order.
const idempotencyHeader = "Idempotency-Key"

// placeOrder answers POST /api/v1/orders. The order goes to checkout once; whoever sees no answer asks again with the same key.
func (a *api) placeOrder(w http.ResponseWriter, r *http.Request) error {
	key, err := idempotencyKey(r.Header.Values(idempotencyHeader))
	if err != nil {
		return err
	}
	var body shop.NewOrder
	if err := strictjson.Decode(w, r, &body); err != nil {
		return invalidBody(err)
	}
	order, replayed, err := a.Shop.PlaceOrder(r.Context(), key, body)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/v1/orders/"+order.ID)
	if replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	return a.answerJSON(w, http.StatusCreated, order)
}

// idempotencyKey reads the header in both its forms: a bare token, or the quoted string of the IETF draft (a structured
// field, RFC 9651), where \" and \\ stand for quote and backslash. Both name the same key. No key is "".
func idempotencyKey(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", problem.Invalid(idempotencyHeader, "must be given once")
	}
	value := strings.Trim(values[0], " \t")
	for _, c := range []byte(value) {
		if c < ' ' || c > '~' {
			return "", problem.Invalid(idempotencyHeader, "must be printable ASCII")
		}
	}
	if !strings.HasPrefix(value, `"`) {
		return value, nil
	}
	key, ok := unquote(value)
	if !ok {
		return "", problem.Invalid(idempotencyHeader, "the quoted string is not closed, or has something behind it")
	}
	return key, nil
}

func unquote(value string) (string, bool) {
	var out strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			return out.String(), i == len(value)-1
		case '\\':
			i++
			if i == len(value) || (value[i] != '"' && value[i] != '\\') {
				return "", false
			}
			out.WriteByte(value[i])
		default:
			out.WriteByte(c)
		}
	}
	return "", false
}

func invalidBody(err error) problem.Problem {
	var wrong *strictjson.SyntaxError
	switch {
	case errors.Is(err, strictjson.ErrTooLarge):
		return problem.New(http.StatusRequestEntityTooLarge, "body_too_large", err.Error())
	case errors.Is(err, strictjson.ErrTooSlow):
		return problem.New(http.StatusRequestTimeout, "timeout", err.Error())
	case errors.As(err, &wrong) && wrong.Field != "":
		return problem.Invalid(wrong.Field, wrong.Detail)
	case errors.As(err, &wrong):
		return problem.Invalid("body", wrong.Detail)
	default:
		return problem.Invalid("body", strictjson.ErrInterrupted.Error())
	}
}
