-- +goose Up

CREATE TABLE stock (
    product_id text   PRIMARY KEY,
    available  bigint NOT NULL CHECK (available >= 0),          -- pieces that can still be reserved
    reserved   bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0)  -- pieces reserved for orders, those that were sold included
);

-- What became of each order that was heard of, so that hearing of it again changes nothing. An order that is cancelled
-- before it is placed, as events may arrive, is released from the start: a tombstone.
CREATE TABLE reservations (
    order_id   uuid        PRIMARY KEY,
    status     text        NOT NULL CHECK (status IN ('reserved', 'rejected', 'released')),
    short      text        NOT NULL DEFAULT '', -- rejected: the first product of which there was too little
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- What is reserved; a released order has no lines.
CREATE TABLE reservation_lines (
    order_id   uuid   NOT NULL REFERENCES reservations,
    product_id text   NOT NULL REFERENCES stock,
    quantity   bigint NOT NULL CHECK (quantity >= 1),
    PRIMARY KEY (order_id, product_id)
);

-- +goose Down
DROP TABLE reservation_lines, reservations, stock;
