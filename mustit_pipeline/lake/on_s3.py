"""The lake on S3: all files of a folder are sent first, and become objects when the last one has arrived."""

import tempfile
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mustit_pipeline.aws.clients import AwsRefused, AwsUnreachable, aws_client, aws_failures
from mustit_pipeline.lake.failures import LakeUnreachable, lake_failures
from mustit_pipeline.settings import Settings

# The least that S3 takes for a part that is not the last, and 10,000 of them. Each call at once holds one in memory.
PART_BYTES = 5 * 1024 * 1024
CALLS_AT_ONCE, FILES_AHEAD = 6, 16
KEYS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that has arrived; completing it makes it an object."""

    key: str
    id: str
    parts: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class NewObjects:
    """The new files of a folder, which readers do not see yet."""

    client: Any
    bucket: str
    prefix: str
    made_in: Path
    pool: ThreadPoolExecutor
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    uploads: list[Upload] = field(default_factory=list[Upload])
    sending: deque[Future[None]] = field(default_factory=deque[Future[None]])

    @property
    def address(self) -> str:
        """The folder's address."""
        return f"s3://{self.bucket}/{self.prefix}"

    @contextmanager
    def file(self, name: str) -> Generator[Path]:
        """The path to write a file to; it is sent in the background, and few files wait for that at once."""
        path = self.made_in / str(len(self.sizes))
        with lake_failures(str(path)):
            yield path
            self.sizes[name] = path.stat().st_size
        if len(self.sending) >= FILES_AHEAD:
            self.sending.popleft().result()
        self.sending.append(self.pool.submit(self._send, path, self.prefix + name))

    def publish(self) -> None:
        """Make all files objects, and remove those of the folder that are not among them."""
        while self.sending:
            self.sending.popleft().result()
        list(self.pool.map(self._complete, self.uploads))
        self.uploads.clear()
        with aws_failures(self.address):
            listed = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            stored = [one["Key"] for page in listed for one in page.get("Contents", [])]
            gone = [key for key in stored if key.removeprefix(self.prefix) not in self.sizes]
            for first in range(0, len(gone), KEYS_AT_ONCE):
                self._delete(gone[first : first + KEYS_AT_ONCE])

    def abort(self) -> None:
        """Give up what has not become an object."""
        for one in self.sending:
            one.cancel()
        wait(self.sending)
        # A failure that led here is the one to report.
        with suppress(AwsRefused, AwsUnreachable):
            for upload in self.uploads:
                self._abort(upload.key, upload.id)

    def abort_left(self) -> None:
        """Give up what a killed process has sent of this folder: S3 would keep it, and charge for it."""
        with aws_failures(self.address):
            pages = self.client.get_paginator("list_multipart_uploads")
            left = [
                (one["Key"], one["UploadId"])
                for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix)
                for one in page.get("Uploads", [])
            ]
        for key, upload_id in left:
            self._abort(key, upload_id)

    def _send(self, path: Path, key: str) -> None:
        where = {"Bucket": self.bucket, "Key": key}
        with aws_failures(f"s3://{self.bucket}/{key}"), path.open("rb") as content:
            upload = Upload(key, self.client.create_multipart_upload(**where)["UploadId"], [])
            self.uploads.append(upload)
            while body := content.read(PART_BYTES):
                number = len(upload.parts) + 1
                answer = self.client.upload_part(**where, UploadId=upload.id, PartNumber=number, Body=body)
                upload.parts.append({"ETag": answer["ETag"], "PartNumber": number})
        path.unlink()

    def _complete(self, upload: Upload) -> None:
        with aws_failures(f"s3://{self.bucket}/{upload.key}"):
            self.client.complete_multipart_upload(
                Bucket=self.bucket, Key=upload.key, UploadId=upload.id, MultipartUpload={"Parts": upload.parts}
            )

    def _abort(self, key: str, upload_id: str) -> None:
        with aws_failures(f"s3://{self.bucket}/{key}"):
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)

    def _delete(self, keys: list[str]) -> None:
        objects = [{"Key": key} for key in keys]
        answer = self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", []):
            raise LakeUnreachable(f"s3://{self.bucket}/{error['Key']}", f"not deleted: {error.get('Message')}")


@dataclass(frozen=True, slots=True)
class BucketLake:
    """Objects of a bucket, under the names that folders would have."""

    filesystem: Any
    root: str
    settings: Settings

    def shown(self, name: str) -> str:
        """The address of a folder or file."""
        return f"s3://{self.root}/{name}"

    @contextmanager
    def replace(self, folder: str) -> Generator[NewObjects]:
        """The new files of a folder; they replace the old ones when the block ends well, and otherwise not."""
        bucket, _, prefix = f"{self.root}/{folder}/".partition("/")
        client = aws_client(self.settings, "s3")
        with tempfile.TemporaryDirectory(prefix="mustit-lake-") as made_in, ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            fresh = NewObjects(client, bucket, prefix, Path(made_in), pool)
            fresh.abort_left()
            try:
                yield fresh
                fresh.publish()
            finally:
                fresh.abort()
