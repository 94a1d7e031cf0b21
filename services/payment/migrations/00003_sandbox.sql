-- +goose Up

-- The books of the sandbox provider, which a real provider keeps on its own side. Payment itself never reads them.
CREATE TABLE sandbox_keys (
    key    uuid    PRIMARY KEY, -- the idempotency key
    state  text    NOT NULL CHECK (state IN ('trying', 'charged', 'declined', 'called_off')),
    reason text    NOT NULL DEFAULT '',
    tries  integer NOT NULL DEFAULT 0 -- how often a charge was asked for
);

-- Every movement of money, never changed: a second charge under one key would be a second row.
CREATE TABLE sandbox_ledger (
    entry    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key      uuid        NOT NULL REFERENCES sandbox_keys,
    kind     text        NOT NULL CHECK (kind IN ('charge', 'refund')),
    currency text        NOT NULL,
    amount   bigint      NOT NULL CHECK (amount > 0), -- minor units
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX sandbox_ledger_key ON sandbox_ledger (key);

-- +goose Down
DROP TABLE sandbox_ledger, sandbox_keys;
