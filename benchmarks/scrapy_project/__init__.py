"""The same crawl as an ordinary Scrapy project with a plain PostgreSQL pipeline."""
