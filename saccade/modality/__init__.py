"""Arrays of pictures and sounds -> vectors and masks, in plain PyTorch; reading files is the business of data."""
