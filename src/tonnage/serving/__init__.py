"""Start inference servers, watch them, and spread requests over them."""
