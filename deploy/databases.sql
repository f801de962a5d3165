-- Run once by the postgres image, after it has made the business database: Dagster's own is another one.
CREATE DATABASE mustit_dagster;
