package outbox

// Statement is one of the statements, with the types of its parameters.
type Statement struct {
	SQL   string
	Types []string
}

// LoopStatements are those that run over and over, for the test of their plans.
func LoopStatements() map[string]Statement {
	return map[string]Statement{
		"lease_batch":    {leaseBatch, []string{"int", "text", "interval"}},
		"end_leases":     {endLeases, []string{"text"}},
		"lock_batch":     {lockBatch, []string{"int"}},
		"mark_published": {markPublished, []string{"uuid[]"}},
		"postpone":       {postpone, []string{"uuid[]", "text", "interval", "text"}},
		"note_refusals":  {noteRefusals, []string{"uuid[]", "text[]", "text", "interval", "int"}},
		"oldest_age":     {oldestAge, nil},
		"count_dead":     {countDead, []string{"int"}},
		"purge_outbox":   {purgeOutbox, []string{"interval", "int"}},
		"purge_inbox":    {purgeInbox, []string{"interval", "int"}},
		"take_retry":     {takeRetry, []string{"text"}},
	}
}
