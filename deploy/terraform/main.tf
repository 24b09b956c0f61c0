# A bucket for anchors. It should belong to an account of its own, whose owner does not own the ledger's machine: in
# compliance mode not even that owner can remove an anchor before its date, but the owner can close the account.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "bucket" {
  description = "Name of the bucket."
  type        = string
}

variable "prefix" {
  description = "What the anchors' keys begin with: one for each ledger, without a slash at either end."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._/-]*[A-Za-z0-9]$", var.prefix))
    error_message = "The prefix has letters, digits and . _ / - and no slash at either end."
  }
}

variable "default_retention_days" {
  description = "For objects that name no lock of their own. Anchors name theirs (ledgerctl anchor push --retain)."
  type        = number
  default     = 400
}

resource "aws_s3_bucket" "anchors" {
  bucket              = var.bucket
  object_lock_enabled = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_versioning" "anchors" {
  bucket = aws_s3_bucket.anchors.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_object_lock_configuration" "anchors" {
  bucket = aws_s3_bucket.anchors.id

  rule {
    default_retention {
      mode = "COMPLIANCE"
      days = var.default_retention_days
    }
  }

  depends_on = [aws_s3_bucket_versioning.anchors]
}

resource "aws_s3_bucket_public_access_block" "anchors" {
  bucket                  = aws_s3_bucket.anchors.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "anchors" {
  bucket = aws_s3_bucket.anchors.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

data "aws_iam_policy_document" "bucket" {
  statement {
    sid       = "OnlyEncryptedConnections"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.anchors.arn, "${aws_s3_bucket.anchors.arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "anchors" {
  bucket = aws_s3_bucket.anchors.id
  policy = data.aws_iam_policy_document.bucket.json

  depends_on = [aws_s3_bucket_public_access_block.anchors]
}

# The policies are those of deploy/iam, with the names filled in.
locals {
  policies = {
    for name in ["writer", "verifier"] : name => replace(replace(file("${path.module}/../iam/${name}.json"), "BUCKET", var.bucket), "PREFIX", var.prefix)
  }
}

resource "aws_iam_policy" "writer" {
  name        = "${var.bucket}-anchor-writer"
  description = "Make anchors, and remove nothing: for ledgerctl anchor push."
  policy      = local.policies["writer"]
}

resource "aws_iam_policy" "verifier" {
  name        = "${var.bucket}-anchor-verifier"
  description = "Read anchors, and change nothing: for ledgerctl verify --anchors."
  policy      = local.policies["verifier"]
}

output "ledger_anchor" {
  description = "For LEDGER_ANCHOR, and --to and --anchors of ledgerctl."
  value       = "s3://${var.bucket}/${var.prefix}"
}

output "policies" {
  description = "To attach to the roles of the ledger's machine and of the verifier's."
  value = {
    writer   = aws_iam_policy.writer.arn
    verifier = aws_iam_policy.verifier.arn
  }
}
