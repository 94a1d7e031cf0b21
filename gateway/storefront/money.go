package storefront

import (
	"strconv"
	"strings"

	"golang.org/x/text/currency"
)

// money writes an amount of minor units (255 of GBP) for people (£2.55): with as many decimals as ISO 4217 gives the
// currency, thousands apart, and the currency's code where its sign is not known to all.
func money(code string, minor int64) string {
	decimals := 2
	if unit, err := currency.ParseISO(code); err == nil {
		decimals, _ = currency.Standard.Rounding(unit)
	}
	digits := strconv.FormatInt(max(minor, 0), 10)
	if missing := decimals + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole, fraction := digits[:len(digits)-decimals], digits[len(digits)-decimals:]
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if decimals > 0 {
		whole += "." + fraction
	}
	switch code {
	case "GBP":
		return "£" + whole
	case "EUR":
		return "€" + whole
	case "USD":
		return "$" + whole
	}
	return whole + "\u00a0" + code
}
