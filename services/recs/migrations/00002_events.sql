-- +goose Up

-- Events that this database's transactions announce, until the broker has them and a while longer. The payload is opaque here.
CREATE TABLE outbox (
    id              uuid        PRIMARY KEY, -- the event's id for its whole life: consumers recognise repeats by it
    type            text        NOT NULL,    -- full name of the payload's message
    subject         text        NOT NULL,    -- where the broker puts it
    payload         bytea       NOT NULL,
    traceparent     text        NOT NULL DEFAULT '', -- W3C trace context in which the event came about
    tracestate      text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    attempts        integer     NOT NULL DEFAULT 0,  -- refusals by the broker; that it was away does not count
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    last_error      text        NOT NULL DEFAULT '',
    lease_owner     text        NOT NULL DEFAULT '', -- the relay that is publishing it
    lease_expires_at timestamptz,                    -- when another relay may take it over
    published_at    timestamptz,                     -- when the broker's acknowledgement was noted
    dead_at         timestamptz                      -- when it was given up
) WITH (
    -- Every row is written three times and then deleted: vacuum comes by number of rows, not by share of a table that
    -- keeps an hour of published ones. Truncating the file's end would lock out every writer for space that is needed again.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, vacuum_truncate = false
);

-- What relays look for, in the order of its turn. A row that waits for its next attempt is behind all that are due, so
-- that no number of refused rows is in anybody's way; published rows are not in it, however many the table keeps. The
-- lease is in no index: taking one can stay on the row's page.
CREATE INDEX outbox_due ON outbox (next_attempt_at) WHERE published_at IS NULL AND dead_at IS NULL;

-- The waiting rows whose turn no longer tells their age.
CREATE INDEX outbox_failed ON outbox (created_at) WHERE published_at IS NULL AND dead_at IS NULL AND last_error <> '';

-- What the purge looks for.
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

-- What an operator looks for.
CREATE INDEX outbox_dead ON outbox (dead_at) WHERE dead_at IS NOT NULL;

-- The ids of events whose effect is in this database. They are kept for longer than the broker keeps the events.
CREATE TABLE inbox (
    id          uuid        PRIMARY KEY,
    received_at timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, vacuum_truncate = false);

-- What the purge looks for.
CREATE INDEX inbox_age ON inbox (received_at);

-- Events of others that had no effect here and will not be delivered again.
CREATE TABLE dead_letters (
    id          uuid        PRIMARY KEY, -- the event's id
    stream      text        NOT NULL,
    subject     text        NOT NULL,
    type        text        NOT NULL,
    payload     bytea       NOT NULL,
    traceparent text        NOT NULL,
    tracestate  text        NOT NULL,
    created_at  timestamptz NOT NULL, -- when the event came about
    attempts    bigint      NOT NULL, -- how often it was handled in vain
    last_error  text        NOT NULL,
    dead_at     timestamptz NOT NULL DEFAULT now(),
    retry_at    timestamptz           -- when an operator asked to handle it again
);

-- What consumers look for.
CREATE INDEX dead_letters_retry ON dead_letters (stream, retry_at) WHERE retry_at IS NOT NULL;

-- +goose Down
DROP TABLE dead_letters, inbox, outbox;
