-- +goose Up

-- One payment an order: the intent is stored before the provider is asked, the outcome after it has answered.
CREATE TABLE payments (
    order_id      uuid        PRIMARY KEY, -- also the key under which the provider is asked
    status        text        NOT NULL CHECK (status IN ('pending', 'charged', 'declined', 'refunded', 'cancelled')),
    reason        text        NOT NULL DEFAULT '',
    customer_id   text        NOT NULL DEFAULT '',
    currency      text        NOT NULL DEFAULT '',
    amount        bigint      NOT NULL DEFAULT 0 CHECK (amount >= 0), -- minor units; 0 when the order was cancelled before it was asked for
    payment_token text        NOT NULL DEFAULT '',
    called_off    boolean     NOT NULL DEFAULT false, -- the order was cancelled: nothing may stay charged
    charged       bigint      NOT NULL DEFAULT 0 CHECK (charged >= 0),
    refunded      bigint      NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND charged),
    attempts      integer     NOT NULL DEFAULT 0,       -- how often the provider was asked, or was about to be
    due_at        timestamptz DEFAULT now(),            -- when to ask the provider; while it is being asked, when to ask again at the latest; null when there is nothing to ask
    traceparent   text        NOT NULL DEFAULT '',      -- W3C trace context of the request
    tracestate    text        NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    -- The books balance in every final state.
    CHECK (status <> 'charged' OR charged = amount AND refunded = 0),
    CHECK (status NOT IN ('declined', 'cancelled') OR charged = 0),
    CHECK (status <> 'refunded' OR refunded = charged AND charged > 0)
);

-- What the workers look for.
CREATE INDEX payments_due ON payments (due_at) WHERE due_at IS NOT NULL;

-- +goose Down
DROP TABLE payments;
