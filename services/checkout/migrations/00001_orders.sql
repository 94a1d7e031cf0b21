-- +goose Up

-- What each product costs; the client never sets a price.
CREATE TABLE prices (
    product_id text   PRIMARY KEY,
    name       text   NOT NULL,
    currency   text   NOT NULL,
    minor      bigint NOT NULL CHECK (minor > 0) -- price of one piece in minor units
);

CREATE TABLE orders (
    id            uuid        PRIMARY KEY, -- version 7: new rows share the index's last page
    customer_id   text        NOT NULL,
    status        text        NOT NULL CHECK (status IN ('pending', 'awaiting_payment', 'confirmed', 'rejected', 'cancelled')),
    reason        text        NOT NULL DEFAULT '',
    currency      text        NOT NULL,
    total         bigint      NOT NULL CHECK (total > 0), -- minor units
    payment_token text        NOT NULL,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL
);

-- The orders that still wait for something, oldest first.
CREATE INDEX orders_open ON orders (created_at) WHERE status IN ('pending', 'awaiting_payment');

-- The lines keep name and price as they were when ordered.
CREATE TABLE order_lines (
    order_id   uuid    NOT NULL REFERENCES orders,
    position   integer NOT NULL, -- from 1, as the products were first named
    product_id text    NOT NULL,
    name       text    NOT NULL,
    quantity   bigint  NOT NULL CHECK (quantity BETWEEN 1 AND 100000),
    unit_price bigint  NOT NULL CHECK (unit_price > 0),
    line_total bigint  NOT NULL CHECK (line_total > 0),
    PRIMARY KEY (order_id, position)
);

-- Each status change, for those who watch; sequence counts the changes of one order from 1.
CREATE TABLE order_events (
    order_id uuid        NOT NULL REFERENCES orders,
    sequence bigint      NOT NULL CHECK (sequence > 0),
    status   text        NOT NULL,
    reason   text        NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (order_id, sequence)
);

-- The keys under which orders were placed, until they expire. Orders stay; hence no foreign key is needed to keep them.
CREATE TABLE idempotency_keys (
    customer_id text        NOT NULL,
    key         text        NOT NULL,
    fingerprint bytea       NOT NULL, -- of the order as it was asked for
    order_id    uuid        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (customer_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- +goose Down
DROP TABLE idempotency_keys, order_events, order_lines, orders, prices;
