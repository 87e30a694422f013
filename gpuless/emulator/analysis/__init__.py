"""What is known of a kernel before it is translated: from PTX, and from the shape of a block."""
