-- The catalog: what the shop sells, as it is shown.

-- +goose Up
CREATE TABLE products (
    key         text   PRIMARY KEY, -- the id in lower case: ids that differ only in case are one
    id          text   NOT NULL,
    name        text   NOT NULL,
    description text   NOT NULL,
    category    text   NOT NULL,
    currency    text   NOT NULL,
    minor       bigint NOT NULL CHECK (minor >= 0), -- the price in the currency's smallest unit
    popularity  bigint NOT NULL CHECK (popularity >= 0)
);

-- One row. Each change of the catalog gives it another version, by which every replica sees that its index is old, and
-- its lock makes changes take turns. Versions are random: a database that was restored or made anew has none that was
-- seen before.
CREATE TABLE catalog (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version   uuid    NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO catalog DEFAULT VALUES;

-- +goose Down
DROP TABLE catalog;
DROP TABLE products;
