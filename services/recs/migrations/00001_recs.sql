-- +goose Up

-- What was bought in one go. The product ids are spelled as they came.
CREATE TABLE baskets (
    id          text PRIMARY KEY,
    product_ids text[] NOT NULL CHECK (cardinality(product_ids) > 0)
);

-- The model, one row a product: in how many baskets it is, and what is bought with it, strongest first. Replaced as a
-- whole; the most popular products are those with the most baskets.
CREATE TABLE neighbours (
    product_id    text PRIMARY KEY,
    baskets       bigint NOT NULL CHECK (baskets > 0),
    neighbour_ids text[] NOT NULL,
    scores        real[] NOT NULL CHECK (cardinality(scores) = cardinality(neighbour_ids))
);

-- One row that says which model is in neighbours and whether baskets came since.
CREATE TABLE model (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  bigint NOT NULL DEFAULT 0, -- counts the models; replicas load the one they have not seen
    received bigint NOT NULL DEFAULT 0, -- counts the changes of baskets, in the order of their commits
    learned  bigint NOT NULL DEFAULT 0, -- the change up to which the model knows the baskets
    baskets  bigint NOT NULL DEFAULT 0  -- how many baskets that was
);
INSERT INTO model DEFAULT VALUES;

-- +goose Down
DROP TABLE model, neighbours, baskets;
