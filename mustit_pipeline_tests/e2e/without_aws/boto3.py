"""What commands of the tests find in the place of AWS's library: without a setting of AWS they import none of it."""

raise AssertionError("AWS is off, and yet its library is imported")
